"""Files through the real command, the real log and the real stream into the rollups and a ledger that closes."""

from __future__ import annotations

import csv
import gzip
import json
import random
import tarfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tokenfuse_command import Tokenfuse

pytestmark = [pytest.mark.e2e, pytest.mark.flink]

RECORDING = Path(__file__).parents[2] / "cli" / "demo" / "recording"
A10G_HOUR = Decimal("1.006")
CARD = """
version: 1
label: test card
currency: USD
charge_basis: list
rates:
  - kind: gpu_hour
    sku: A10G
    price: "1.006"
    source: test
    valid_from: 2020-01-01T00:00:00Z
"""


def trace_rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "traces/azure_llm_2023/AzureLLMInferenceTrace_code.csv").open(newline="") as lines:
        return list(csv.DictReader(lines))


def as_usage(rows: list[dict[str, str]]) -> Iterator[dict[str, Any]]:
    """The trace as usage records: ids by position, shuffled by ±60 s, 3 % of them sent twice."""
    rng = random.Random(7)
    made = []
    for number, row in enumerate(rows):
        at = datetime.fromisoformat(row["TIMESTAMP"][:26]).replace(tzinfo=UTC)
        record = {
            "request_id": f"azure-{number}",
            "started_at": at.isoformat(),
            "finished_at": (at + timedelta(seconds=1)).isoformat(),
            "deployment": {"cluster": "c", "namespace": "n", "model_id": "as-usage"},
            "tenant": {"org": "azure"},
            "tokens": {"input_uncached": int(row["ContextTokens"]), "output": int(row["GeneratedTokens"])},
        }
        made += [(number + rng.uniform(-150, 150), record)] * (2 if rng.random() < 0.03 else 1)
    return (record for _, record in sorted(made, key=lambda pair: pair[0]))


@pytest.fixture(scope="module")
def loaded(tokenfuse: Tokenfuse, realdata: Path) -> Tokenfuse:
    """Every source in one log, read by one run of the stream."""
    work = tokenfuse.folder
    trace = str(realdata / "traces/azure_llm_2023/AzureLLMInferenceTrace_code.csv")
    for _ in range(2):
        tokenfuse.run("ingest", "usage", trace, "--format", "azure-llm", "--deployment", "c/n/trace", "--tenant", "azure")
    shuffled = work / "shuffled.jsonl"
    shuffled.write_text("\n".join(json.dumps(record) for record in as_usage(trace_rows(realdata))))
    tokenfuse.run("ingest", "usage", str(shuffled), "--format", "usage")
    _ingest_recording(tokenfuse, work)
    tokenfuse.run("stream", "run", "--until-idle")
    return tokenfuse


def _ingest_recording(tokenfuse: Tokenfuse, work: Path) -> None:
    with tarfile.open(RECORDING / "pages.tar.xz") as pages:
        pages.extractall(work / "pages", filter="data")
    place = ("--deployment", "c/n/deepseek-tiny")
    tokenfuse.run("ingest", "usage", str(RECORDING / "gateway.jsonl.gz"), "--format", "litellm", *place, "--tenant", "demo")
    tokenfuse.run("ingest", "engine", str(work / "pages"), *place, "--target", "recording", "--node", "gpu-c")


def row_of(tokenfuse: Tokenfuse, model: str) -> dict[str, Any]:
    rows: list[dict[str, Any]] = tokenfuse.json("show", "usage", "--by", "model_id", "--where", f"model_id={model}")
    assert len(rows) == 1
    return rows[0]


@pytest.mark.parametrize("model", ["trace", "as-usage"])
def test_totals_equal_the_file(loaded: Tokenfuse, realdata: Path, model: str) -> None:
    rows = trace_rows(realdata)
    got = row_of(loaded, model)
    assert got["requests"] == len(rows) == 8819
    assert got["input_uncached"] == sum(int(row["ContextTokens"]) for row in rows)
    assert got["output"] == sum(int(row["GeneratedTokens"]) for row in rows)


def test_the_gateway_view_of_the_recording(loaded: Tokenfuse) -> None:
    truth = json.loads((RECORDING / "truth.json").read_text())["gateway"]
    got = row_of(loaded, "deepseek-tiny")
    assert got["requests"] == truth["rows"]
    assert got["input_uncached"] + got["input_cache_read"] == truth["prompt"]
    assert got["output"] == truth["completion"]
    assert got["errors"] == truth["failure"]
    assert got["aborted"] > 0


def test_the_engine_view_survives_the_restart_and_the_difference_is_named(loaded: Tokenfuse) -> None:
    truth = json.loads((RECORDING / "truth.json").read_text())
    (got,) = loaded.json("show", "coverage", "--by", "model_id", "--where", "model_id=deepseek-tiny")
    assert got["engine_prompt_tokens"] == truth["engine_prompt_tokens"]
    assert got["engine_generation_tokens"] == truth["engine_generation_tokens"]
    engine = truth["engine_prompt_tokens"] + truth["engine_generation_tokens"]
    gateway = truth["gateway"]["prompt"] + truth["gateway"]["completion"]
    assert abs(float(got["coverage"]) - gateway / engine) < 0.001
    named = {reason["name"]: (reason["tokens_in"], reason["tokens_out"]) for reason in got["reasons"]}
    assert named == {
        "parallel_answers": (20_181, 0),
        "unfinished": (43_537, 783),
        "estimated_stream": (3_077, 625),
        "missing_usage": (None, None),
        "engine_reset": (None, None),
        "scrape_gap": (None, None),
    }
    assert got["difference_in"] == sum(tokens or 0 for tokens, _ in named.values())
    assert got["difference_out"] == sum(tokens or 0 for _, tokens in named.values())


def test_the_ledger_of_the_recording_closes_to_the_last_decimal(loaded: Tokenfuse) -> None:
    card = loaded.folder / "card.yaml"
    card.write_text(CARD)
    loaded.run("rates", "import", str(card))
    loaded.run(
        "node", "declare", "--target", "recording", "--node", "gpu-c", "--deployment", "c/n/deepseek-tiny",
        "--gpu", "A10G", "--count", "1", "--from", "2026-11-30T11:30:00Z",
    )  # fmt: skip
    loaded.run("ledger", "close", "--no-grace", "--since", "2026-11-30T11:30:00Z")
    window = ("--from", "2026-11-30T11:45:00Z", "--to", "2026-11-30T12:15:00Z")
    shown = loaded.json("ledger", "show", "--by", "deployment,kind", *window)
    mine = [row for row in shown["rows"] if row["deployment"] == "c/n/deepseek-tiny"]
    assert sum(Decimal(row["cost"]) for row in mine) == A10G_HOUR / 2
    assert {"served", "idle", "unattributed"} <= {row["kind"] for row in mine}
    assert all(Decimal(total["difference"]) == 0 for total in shown["totals"])


def test_a_second_run_changes_no_total(loaded: Tokenfuse, realdata: Path) -> None:
    before = loaded.json("show", "usage", "--by", "model_id,status")
    with gzip.open(RECORDING / "gateway.jsonl.gz") as stored:
        again = loaded.folder / "again.jsonl"
        again.write_bytes(stored.read())
    loaded.run("ingest", "usage", str(again), "--format", "litellm", "--deployment", "c/n/deepseek-tiny", "--tenant", "demo")
    loaded.run("stream", "run", "--until-idle")
    assert loaded.json("show", "usage", "--by", "model_id,status") == before
