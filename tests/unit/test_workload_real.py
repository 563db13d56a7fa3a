"""Classes on real requests: the labelled mix of four published traces, and the recorded flood of long prompts."""

from __future__ import annotations

import csv
import gzip
import json
import os
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from control.workload_training import Trained, fit
from core.usage import Deployment
from core.usage_codec import decode_usage
from core.workload import NEW, Shape, WorkloadModel, score, shape, shape_of
from core.workload_columns import UNKNOWN, Ints, placed
from core.workload_drift import MinuteCounts, NewClass, new_class
from core.workload_match import matched, with_new_class
from ingest.usage.registry import ADAPTERS
from ingest.usage.rows import Prepared, SourceOptions

DATA = Path(os.environ.get("TOKENFUSE_DATA", Path(__file__).parents[2] / "../shared/data")).resolve()
RECORDING = Path(__file__).parents[2] / "cli/demo/recording"
EACH = 1_500
LONG = 9_000


def rows(found: list[Shape | None]) -> Ints:
    return np.array([[UNKNOWN if value is None else value for value in one] for one in found if one is not None], np.int64)


def labelled() -> Iterator[list[Shape | None]]:
    """Azure code, Mooncake, Claude Code and Chatbot Arena, as their own columns tell them."""
    traces = DATA / "traces"
    with (traces / "azure_llm_2023/AzureLLMInferenceTrace_code.csv").open() as file:
        yield [shape(int(row["ContextTokens"]), 0, int(row["GeneratedTokens"]), None) for row in csv.DictReader(file)]
    with (traces / "mooncake_fast25/conversation_trace_part1.jsonl").open() as file:
        yield list(_mooncake([json.loads(line) for line in file]))
    with (traces / "claude_code_weka/requests.csv").open() as file:
        yield [_claude(row) for row in csv.DictReader(file) if row["input_tokens"] and row["output_tokens"]]
    with (traces / "vtc_arena27/real_trace.csv").open() as file:
        yield [shape(int(row["prompt_len"]), 0, int(row["output_len"]), None) for row in csv.DictReader(file)]


def _mooncake(found: list[dict[str, object]]) -> Iterator[Shape | None]:
    """A block of 512 tokens that came before, from the head on, would come from the cache."""
    seen: set[int] = set()
    for row in found:
        blocks, into = [int(n) for n in row["hash_ids"]], int(str(row["input_length"]))  # type: ignore[attr-defined]
        hits = next((n for n, block in enumerate(blocks) if block not in seen), len(blocks))
        seen.update(blocks)
        yield shape(into, min(512 * hits, into), int(str(row["output_length"])), None)


def _claude(row: dict[str, str]) -> Shape | None:
    into = int(row["input_tokens"])
    return shape(into, min(int(row["cached_prefix_tokens"]), into), int(row["output_tokens"]), row["stop"] == "tool_use")


@pytest.mark.realdata
@pytest.mark.parametrize("seed", [7, 11])
def test_the_sources_of_a_labelled_mix_are_found_again(seed: int) -> None:
    if not (DATA / "traces").is_dir():
        pytest.skip(f"no traces in {DATA}: set TOKENFUSE_DATA")
    random = Random(seed)
    drawn = [random.sample([one for one in source if one is not None], EACH) for source in labelled()]
    found = rows([one for source in drawn for one in source])
    groups = fit(found)
    labels = placed(groups.groups, groups.weights, found).place
    assert adjusted_rand_score(np.repeat(range(4), EACH), labels) >= 0.60
    assert groups.stable


def recorded() -> list[tuple[datetime, Shape, int]]:
    """Finish, shape and input tokens of the recording's answered requests, in order of finish."""
    found = []
    with gzip.open(RECORDING / "gateway.jsonl.gz") as stream:
        for row in ADAPTERS["litellm"].rows(stream, SourceOptions(deployment=Deployment("lab", "prod", "deepseek-tiny"))):
            if isinstance(row, Prepared):
                record = decode_usage(json.loads(row.record))
                one = shape_of(record)
                if one is not None:
                    found.append((record.finished_at, one, record.tokens.input_total))
    return sorted(found, key=lambda row: row[0])


def replay(found: list[tuple[datetime, Shape, int]], model: WorkloadModel, since: datetime) -> NewClass | None:
    """The first burst that a look every 15 seconds sees in the minutes of ``found``."""
    at = since
    while at <= found[-1][0]:
        counts: dict[datetime, list[int]] = {}
        for finished, one, _ in found:
            if since <= finished <= at:
                both = counts.setdefault(finished.replace(second=0, microsecond=0), [0, 0])
                both[0] += 1
                both[1] += score(model, one) == NEW
        burst = new_class([MinuteCounts(minute, *pair) for minute, pair in counts.items()], at)
        if burst is not None:
            return burst
        at += timedelta(seconds=15)
    return None


def ordinary(found: list[tuple[datetime, Shape, int]]) -> tuple[Trained, WorkloadModel, datetime]:
    """Classes of what came before the first flooding prompt."""
    begin = next(finished for finished, _, tokens in found if tokens >= LONG)
    groups = fit(rows([one for finished, one, _ in found if finished < begin]))
    return groups, WorkloadModel(1, found[0][0], groups.weights, matched((), groups.groups, groups.weights, 1)), begin


def test_the_flood_becomes_a_class_of_its_own_within_three_minutes() -> None:
    found = recorded()
    _, model, begin = ordinary(found)
    before = [row for row in found if row[0] < begin]
    assert replay(before, model, before[0][0]) is None
    assert {score(model, one) for _, one, tokens in found if tokens >= LONG} == {NEW}
    burst = replay(found, model, begin - timedelta(minutes=2))
    assert burst is not None
    assert burst.at - begin <= timedelta(minutes=3) - timedelta(seconds=30)
    new = [one for finished, one, _ in found if begin <= finished <= burst.at and score(model, one) == NEW]
    after = WorkloadModel(2, burst.at, model.weights, with_new_class(model, rows(new), model.classes[-1].number))
    flood = [score(after, one) for finished, one, tokens in found if finished > burst.at and tokens >= LONG]
    assert flood.count(after.classes[-1].number) >= 0.9 * len(flood)
    others = [score(after, one) for _, one, tokens in found if tokens < LONG]
    assert others.count(after.classes[-1].number) <= 0.02 * len(others)
