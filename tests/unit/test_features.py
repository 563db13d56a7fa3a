"""Features of requests: what one request tells, how sessions, tools and similar prompts are followed, and that the archive's
query gives the rows ``core.features`` gives."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spool_samples import spool

from core.features import (
    HOUR_MS,
    MEASURES,
    SIMILAR_MS,
    FeatureFacts,
    facts_of,
    hour_features,
    log_ratio_quarters,
    similar_prompts,
    ten_thousandths,
)
from core.minhash import matches, shared_tokens
from core.ports import LogBatch
from core.tokens import TokenCounts
from core.tool_graph import tool_steps
from core.usage import Deployment, TenantPath, UsageRecord, encode_line, line_fields
from core.usage_codec import encode_usage
from core.windows import epoch_ms
from eventlog.archive import archive_segments
from eventlog.archive_manifest import files_of
from eventlog.feature_sql import archived_features, file_span_ms
from eventlog.manifest import segments

HOUR = datetime(2026, 11, 30, 0, tzinfo=UTC)
START = epoch_ms(HOUR)
SKETCHES = [tuple(Random(n).randrange(2**32) for _ in range(64)) for n in range(2)]
NOBODY = ("c", "n", "m", "o", "t")


def near(sketch: tuple[int, ...], differing: int) -> tuple[int, ...]:
    return tuple(value ^ 1 if n < differing else value for n, value in enumerate(sketch))


def fact(request_id: str, at_ms: int = 0, **changes: Any) -> FeatureFacts:
    known = {"input_tokens": 100, "cached_tokens": 0, "output_tokens": 10}
    return FeatureFacts(request_id, START + at_ms, **({"key": NOBODY} | known | changes))


def sums(*facts: FeatureFacts) -> dict[str, int]:
    (row,) = hour_features(facts, START).rows.values()
    return {name: value for name, value in zip(MEASURES, row, strict=True) if value}


def test_what_is_unknown_stands_in_no_sum() -> None:
    """Usage missing, nobody looked at the texts, no session: a request and nothing else, not zeros that count."""
    bare = FeatureFacts("a", START, NOBODY)
    assert sums(bare) == {"requests": 1}
    full = fact("b", session_id="s", tools=(), repeat_e4=0, sketch=SKETCHES[0])
    assert sums(bare, full) == {
        "requests": 2, "counted_requests": 1, "input_tokens": 100, "output_tokens": 10, "ratio_requests": 1, "ratio_quarters": 13,
        "session_requests": 1, "turn_1": 1, "tool_known_requests": 1, "repeat_requests": 1, "sketched_requests": 1,
        "sketched_input_tokens": 100,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("input_tokens", "output_tokens", "quarters"),
    [(1024, 1024, 0), (1024, 1, 40), (1, 1024, -40), (2048, 1024, 4), (0, 5, None), (5, 0, None), (None, None, None)],
)
def test_the_ratio_is_a_logarithm_or_unknown(input_tokens: int | None, output_tokens: int | None, quarters: int | None) -> None:
    assert log_ratio_quarters(input_tokens, output_tokens) == quarters


def test_failures_are_no_turn_and_other_organisations_sessions_are_others() -> None:
    other = ("c", "n", "m", "else", "t")
    facts = [
        fact("1", 1, session_id="s"), fact("2", 2, session_id="s", status="error"), fact("3", 3, session_id="s"),
        fact("4", 4, session_id="s", key=other), fact("5", 5, session_id="s", status="aborted"),
        fact("0", -HOUR_MS * 6, session_id="s"), fact("x", -HOUR_MS * 6 - 1, session_id="s"),
    ]  # fmt: skip
    rows = {key[3]: dict(zip(MEASURES, row, strict=True)) for key, row in hour_features(facts, START).rows.items()}
    assert [rows["o"][name] for name in ("session_requests", "turn_1", "turn_2", "turn_3_4")] == [3, 0, 1, 2]
    assert (rows["else"]["turn_1"], rows["else"]["session_requests"]) == (1, 1)


def test_a_session_calls_its_tools_one_after_the_other() -> None:
    assert list(tool_steps([(), ("a", "b"), (), ("b",)])) == [[], [("", "a"), ("a", "b")], [], [("b", "b")]]
    facts = [
        fact("1", -5, session_id="s", tools=("search",)), fact("2", 1, session_id="s", tools=("fetch", "fetch")),
        fact("3", 2, session_id="s", tools=None), fact("4", 3, session_id="s", tools=("mail",)), fact("5", 4, tools=("alone",)),
    ]  # fmt: skip
    found = hour_features(facts, START)
    place = NOBODY[:4]
    assert found.edges == {
        (*place, "search", "fetch"): 1, (*place, "fetch", "fetch"): 1, (*place, "fetch", "mail"): 1,
    }  # fmt: skip
    assert sums(*facts)["tool_calls"] == 4


@pytest.mark.parametrize(
    ("earlier", "later", "similar", "saved"),
    [
        ({"sketch": SKETCHES[0]}, {"sketch": SKETCHES[0]}, 1, 100),
        ({"sketch": SKETCHES[0]}, {"sketch": SKETCHES[0], "cached_tokens": 64}, 1, 36),
        ({"sketch": SKETCHES[0]}, {"sketch": SKETCHES[0], "cached_tokens": 100}, 1, 0),
        ({"sketch": SKETCHES[0]}, {"sketch": near(SKETCHES[0], 19)}, 1, 45 * 200 // 109),
        ({"sketch": SKETCHES[0]}, {"sketch": near(SKETCHES[0], 20)}, 0, 0),
        ({"sketch": SKETCHES[0], "input_tokens": 40}, {"sketch": SKETCHES[0]}, 1, 40),
        ({"sketch": SKETCHES[0]}, {"sketch": SKETCHES[1]}, 0, 0),
        ({"sketch": SKETCHES[0]}, {"sketch": ()}, 0, 0),
        ({"sketch": SKETCHES[0], "at_ms": -SIMILAR_MS}, {"sketch": SKETCHES[0]}, 1, 100),
        ({"sketch": SKETCHES[0], "at_ms": -SIMILAR_MS - 1}, {"sketch": SKETCHES[0]}, 0, 0),
        ({"sketch": SKETCHES[0], "input_tokens": None}, {"sketch": SKETCHES[0]}, 0, 0),
        ({"sketch": SKETCHES[0], "key": ("c", "n", "other", "o", "t")}, {"sketch": SKETCHES[0]}, 0, 0),
        ({"sketch": SKETCHES[0], "key": ("c", "n", "m", "else", "")}, {"sketch": SKETCHES[0]}, 1, 100),
    ],
)
def test_a_similar_prompt_saves_the_tokens_both_have_and_the_cache_had_not(
    earlier: dict[str, Any], later: dict[str, Any], similar: int, saved: int
) -> None:
    rows = hour_features([fact("1", **earlier), fact("2", 10, **later)], START).rows.values()
    total = [sum(column) for column in zip(*rows, strict=True)]
    assert (total[MEASURES.index("similar_requests")], total[MEASURES.index("shareable_tokens")]) == (similar, saved)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 25), st.integers(1, 500)), max_size=25))
def test_the_index_finds_what_comparing_all_with_all_finds(drawn: list[tuple[int, int, int]]) -> None:
    facts = [fact(f"{n:02d}", n, sketch=near(SKETCHES[k], d), input_tokens=t) for n, (k, d, t) in enumerate(drawn)]
    expected = {}
    for n, one in enumerate(facts):
        latest = {other.sketch: other.input_tokens or 0 for other in facts[:n]}
        shared = [
            shared_tokens(matches(one.sketch, s), one.input_tokens or 0, t)
            for s, t in latest.items()
            if matches(one.sketch, s) >= 45
        ]
        if shared:
            expected[one.request_id] = max(shared)
    assert {one.request_id: saved for one, saved in similar_prompts(facts, START, 70)} == expected


NAMES = st.sampled_from(["a", "b", "ü,2"])


@st.composite
def records(draw: st.DrawFn) -> UsageRecord:
    """Records around an hour that begins a UTC day, copies of one id up to an hour apart."""
    number = draw(st.integers(0, 11))
    near_ms = [-7 * HOUR_MS, -6 * HOUR_MS, -HOUR_MS, -1, 0, 1, HOUR_MS - 1, HOUR_MS]
    base = near_ms[number % len(near_ms)]
    finished = HOUR + timedelta(milliseconds=base + draw(st.integers(0, 1000) | st.just(HOUR_MS // 2)))
    missing = draw(st.booleans()) and draw(st.booleans())
    sketch = draw(st.sampled_from([(), SKETCHES[0], near(SKETCHES[0], 10), near(SKETCHES[0], 19), SKETCHES[1], (1, 2)]))
    return UsageRecord(
        request_id=f"r{number}",
        started_at=finished - timedelta(seconds=1),
        finished_at=finished,
        deployment=Deployment("c", "n", draw(NAMES)),
        tenant=TenantPath("o", draw(NAMES)),
        tokens=TokenCounts()
        if missing
        else TokenCounts(draw(st.integers(0, 9000)), draw(st.integers(0, 900)), 0, 7, draw(st.integers(0, 99))),
        usage_source="missing" if missing else "exact",
        status=draw(st.sampled_from(["ok", "ok", "aborted", "error"])),
        session_id=draw(st.sampled_from(["", "s1", "s2"])),
        tools=tuple(draw(st.lists(NAMES, max_size=3))),
        repeat_ratio=draw(st.none() | st.sampled_from([Decimal(0), Decimal("0.00005"), Decimal("0.5"), Decimal("0.123449999")])),
        prefix_sketch=sketch,
        raw={"tools": 3, "session_id": "not this"},
    )


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> Callable[[list[list[UsageRecord]]], Path]:
    def pack(batches: list[list[UsageRecord]]) -> Path:
        folder = tmp_path_factory.mktemp("archive")
        for batch in batches:
            log = spool(folder / "log")
            log.append("usage", LogBatch([encode_line(line_fields(r)) for r in batch], [encode_usage(r) for r in batch]))
            log.close()
        epoch = "000001"
        archive_segments(folder, "usage", epoch, [s.segment for s in segments(folder / "log", "usage", epoch)])
        return folder

    return pack


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(records(), min_size=1, max_size=12), min_size=1, max_size=3))
def test_the_archive_gives_the_same_rows(archived: Callable[..., Path], batches: list[list[UsageRecord]]) -> None:
    folder = archived(batches)
    facts = [facts_of(record) for batch in batches for record in batch]
    for hours in (-1, 0, 1):
        expected = hour_features(facts, START + hours * HOUR_MS)
        assert archived_features(folder, HOUR + timedelta(hours=hours)) == expected


@given(st.lists(records(), max_size=14), st.randoms(use_true_random=False))
def test_order_and_repetition_change_nothing(found: list[UsageRecord], random: Random) -> None:
    facts = list({record.request_id: facts_of(record) for record in found}.values())
    shuffled = facts * 2
    random.shuffle(shuffled)
    assert hour_features(shuffled, START) == hour_features(facts, START)


def test_a_file_says_from_when_to_when_its_requests_are(archived: Callable[..., Path]) -> None:
    times = [HOUR + timedelta(minutes=n) for n in (5, 59)]
    record = {"deployment": Deployment("c", "n", "m"), "tenant": TenantPath(), "tokens": TokenCounts()}
    folder = archived([[UsageRecord(request_id=str(at), started_at=at, finished_at=at, **record) for at in times]])
    (path,) = files_of(folder, "usage")
    name = "/".join(path.parts[-2:])
    assert file_span_ms(folder, name) == (epoch_ms(times[0]), epoch_ms(times[1]))
    assert file_span_ms(folder, "date=2026-11-30/gone.parquet") is None


@pytest.mark.parametrize(("ratio", "units"), [("0", 0), ("0.00005", 1), ("0.00004999", 0), ("0.12345", 1235), ("1", 10_000)])
def test_a_ratio_is_kept_in_ten_thousandths(ratio: str, units: int) -> None:
    assert ten_thousandths(Decimal(ratio)) == units
