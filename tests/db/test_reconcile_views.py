"""The two views in the database: the recording explained to the token, and evidence from the minutes around a difference."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import recording_rows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from money_rows import KEYS, D
from sqlalchemy import Connection, Engine, insert

from bench.year import coarser
from core.windows import Window
from models.coverage_repo import coverage_rows
from models.partitions import ensure_months
from models.tables import EngineMinuteRow, UsageMinuteRow

pytestmark = pytest.mark.db

RECORDING = Path(__file__).parents[2] / "cli" / "demo" / "recording"
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
ENGINE = {"cluster": D.cluster, "namespace": D.namespace, "model_id": D.model_id, "target": "t", "engine": "0", "node": "n1"}


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """The committed recording, unpacked."""
    (tmp_path / "metrics").mkdir()
    with tarfile.open(RECORDING / "pages.tar.xz") as pages:
        pages.extractall(tmp_path / "metrics", filter="data")
    (tmp_path / "gateway.jsonl.gz").write_bytes((RECORDING / "gateway.jsonl.gz").read_bytes())
    return tmp_path


def named(row: Mapping[str, Any]) -> dict[str, tuple[int | None, int | None]]:
    return {reason["name"]: (reason["tokens_in"], reason["tokens_out"]) for reason in row["reasons"]}


def adds_up(row: Mapping[str, Any]) -> bool:
    sums = [sum(reason[name] or 0 for reason in row["reasons"]) for name in ("tokens_in", "tokens_out")]
    return sums == [row["difference_in"] or 0, row["difference_out"] or 0]


def test_the_three_views_of_the_recording_are_explained_to_the_token(db: Engine, recording: Path) -> None:
    """Engine 2,210,492 / 21,069, gateway 2,143,697 / 19,661, clients 1,117,363 / 9,392 (those that were told their usage).

    Of the 66,795 prompt tokens between the first two, calls with n=2 account for 20,181; the histograms of finished requests
    leave 361,449 that never finished, of which the gateway books 317,912; the rest lies in 95 streams it had to estimate, for
    the engine finished the 624 requests the gateway knows and not one more. What the engine did between its last page and the
    kill is on no page.
    """
    truth = json.loads((RECORDING / "truth.json").read_text())
    with db.begin() as connection:
        recording_rows.load(connection, recording)
        (whole,) = coverage_rows(connection, ["deployment"], Window(NOON + timedelta(days=9), NOON + timedelta(days=11)))
    assert whole["engine_prompt_tokens"] == truth["engine_prompt_tokens"]
    assert whole["engine_generation_tokens"] == truth["engine_generation_tokens"]
    assert (whole["gateway_input_tokens"], whole["gateway_output_tokens"]) == (
        truth["gateway"]["prompt"], truth["gateway"]["completion"],
    )  # fmt: skip
    reasons = named(whole)
    assert reasons == {
        "parallel_answers": (20_181, 0),
        "unfinished": (43_537, 783),
        "estimated_stream": (3_077, 625),
        "missing_usage": (None, None),
        "engine_reset": (None, None),
        "scrape_gap": (None, None),
    }
    assert (whole["difference_in"], whole["difference_out"]) == (66_795, 1_408)
    assert adds_up(whole)
    counts = {reason["name"]: reason for reason in whole["reasons"]}
    assert counts["engine_reset"]["count"] == truth["engine_restarts"]
    assert counts["estimated_stream"]["requests"] == 95 + 43 + 11


def test_each_hour_of_the_recording_adds_up_by_itself(db: Engine, recording: Path) -> None:
    with db.begin() as connection:
        recording_rows.load(connection, recording)
        hours = coverage_rows(connection, ["deployment", "hour"], Window(NOON + timedelta(days=9), NOON + timedelta(days=11)))
    assert [row["hour"].hour for row in hours] == [11, 12]
    assert all(adds_up(row) for row in hours)
    assert sum(row["difference_in"] for row in hours) == 66_795
    assert sum(dict(named(row))["parallel_answers"][0] or 0 for row in hours) == 20_181


def usage(connection: Connection, *rows: dict[str, Any]) -> None:
    ensure_months(connection, [NOON])
    for row in rows:
        connection.execute(insert(UsageMinuteRow), [{**KEYS, "requests": 1, **row}])
    coarser(connection, "usage")


def engine(connection: Connection, *rows: dict[str, Any]) -> None:
    for row in rows:
        connection.execute(insert(EngineMinuteRow), [{**ENGINE, "observed_us": 60_000_000, **row}])
    coarser(connection, "engine")


def test_work_across_the_hours_border_is_timing_not_a_fault(db: Engine) -> None:
    with db.begin() as connection:
        usage(connection, {"minute": NOON, "input_uncached": 800, "output": 40})
        engine(
            connection,
            {"minute": NOON - MINUTE, "prompt_tokens": 800, "generation_tokens": 30},
            {
                "minute": NOON, "generation_tokens": 10, "finished_prompt_tokens": 800, "finished_generation_tokens": 40,
                "n_requests": 1, "requests_finished": 1,
            },
        )  # fmt: skip
        before, after = coverage_rows(connection, ["hour"], Window(NOON - HOUR, NOON + HOUR))
        (both,) = coverage_rows(connection, [], Window(NOON - HOUR, NOON + HOUR))
    assert named(before) == {"timing_edge": (800, 30)}
    assert named(after) == {"timing_edge": (-800, -30)}
    assert named(both) == {}


def test_minutes_without_an_engine_page_are_told_from_an_excess(db: Engine) -> None:
    with db.begin() as connection:
        usage(
            connection,
            {"minute": NOON, "input_uncached": 100, "output": 10},
            {"minute": NOON + 30 * MINUTE, "input_uncached": 70, "output": 7},
        )
        engine(connection, {"minute": NOON, "prompt_tokens": 95, "generation_tokens": 10})
        (row,) = coverage_rows(connection, ["deployment", "hour"], Window(NOON, NOON + HOUR))
    assert named(row) == {"engine_unseen": (-70, -7), "over_explained": (-5, 0)}
    assert adds_up(row)


def test_what_was_booked_in_the_minutes_of_a_restart_may_be_lost(db: Engine) -> None:
    with db.begin() as connection:
        usage(
            connection,
            {"minute": NOON, "input_uncached": 50, "output": 5},
            {"minute": NOON + 9 * MINUTE, "input_uncached": 70, "output": 7},
        )
        engine(
            connection,
            {"minute": NOON, "prompt_tokens": 50, "generation_tokens": 5},
            {"minute": NOON + 9 * MINUTE},
            {"minute": NOON + 10 * MINUTE, "observed_us": 0, "gap_us": 60_000_000, "resets": 1},
        )
        (row,) = coverage_rows(connection, [], Window(NOON, NOON + HOUR))
    assert named(row) == {"engine_reset": (-70, -7), "scrape_gap": (None, None)}


def test_a_prefill_engine_and_a_decode_engine_count_one_prompt_twice(db: Engine) -> None:
    tell = {"n_requests": 1, "requests_finished": 1, "finished_prompt_tokens": 1000, "prompt_tokens": 1000, "minute": NOON}
    with db.begin() as connection:
        usage(connection, {"minute": NOON, "input_uncached": 1000, "output": 200})
        engine(
            connection,
            {**tell, "target": "prefill", "generation_tokens": 1, "finished_generation_tokens": 1},
            {
                **tell, "target": "decode", "generation_tokens": 200, "finished_generation_tokens": 200,
                "prompt_tokens_external": 1000,
            },
        )  # fmt: skip
        (row,) = coverage_rows(connection, ["deployment"], Window(NOON, NOON + HOUR))
    assert named(row) == {"prefill_decode_split": (1000, 1)}


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/New_York"])
def test_days_of_any_zone_add_up(db: Engine, zone: str) -> None:
    with db.begin() as connection:
        minutes = [NOON + n * 4 * HOUR for n in range(12)]
        usage(connection, *({"minute": at, "input_uncached": 10 + n, "output": n} for n, at in enumerate(minutes)))
        engine(connection, *({"minute": at, "prompt_tokens": 12, "generation_tokens": 3} for at in minutes[::2]))
        days = coverage_rows(connection, ["day"], Window(NOON - HOUR, NOON + 48 * HOUR), zone_name=zone)
    assert all(adds_up(row) for row in days)
    assert sum(row["gateway_input_tokens"] for row in days) == sum(10 + n for n in range(12))


def test_without_reasons_the_figures_are_the_same(db: Engine) -> None:
    with db.begin() as connection:
        usage(connection, {"minute": NOON, "input_uncached": 70, "output": 7})
        engine(connection, {"minute": NOON, "prompt_tokens": 95, "generation_tokens": 10})
        (full,) = coverage_rows(connection, [], Window(NOON, NOON + HOUR))
        (bare,) = coverage_rows(connection, [], Window(NOON, NOON + HOUR), with_reasons=False)
    assert {**full, "reasons": None} == bare


WORKED = st.lists(
    st.tuples(st.integers(0, 24 * 9), st.sampled_from(("tiny", "big")), st.booleans(), st.integers(0, 99)),
    min_size=1,
    max_size=12,
)
"""Hours after noon, the model, whether the engine or the gateway tells, and how much."""


KEYS_ASKED = (
    (),
    ("deployment",),
    ("model_id", "day"),
    ("day",),
    ("hour",),
    ("cluster", "hour", "deployment"),
    ("minute",),
)


@given(
    WORKED, st.sampled_from(KEYS_ASKED), st.sampled_from(("UTC", "Asia/Kolkata")), st.integers(0, 60 * 24 * 3),
    st.integers(1, 60 * 24 * 7),
)  # fmt: skip
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_short_way_is_the_long_way(
    db: Engine, worked: list[tuple[int, str, bool, int]], by: tuple[str, ...], zone: str, start: int, length: int
) -> None:
    window = Window(NOON + start * MINUTE, NOON + (start + length) * MINUTE)
    with db.connect() as connection:
        once = {(model, hours, of_engine): tokens for hours, model, of_engine, tokens in worked}
        told: dict[bool, list[tuple[dict[str, Any], int]]] = {True: [], False: []}
        for (model, hours, of_engine), tokens in once.items():
            told[of_engine].append(({"minute": NOON + hours * HOUR, "model_id": model}, tokens))
        usage(connection, *({**key, "input_uncached": n, "output": 2} for key, n in told[False]))
        engine(connection, *({**key, "prompt_tokens": n, "generation_tokens": 1} for key, n in told[True]))
        full, bare = (
            coverage_rows(connection, by, window, zone_name=zone, with_reasons=with_reasons) for with_reasons in (True, False)
        )
        connection.rollback()
    assert [{**row, "reasons": None} for row in full] == bare


def test_a_month_looks_for_unseen_time_by_the_hour(db: Engine) -> None:
    with db.begin() as connection:
        usage(
            connection,
            {"minute": NOON, "input_uncached": 100, "output": 10},
            {"minute": NOON + HOUR, "input_uncached": 70, "output": 7},
        )
        engine(connection, {"minute": NOON, "prompt_tokens": 100, "generation_tokens": 10})
        (row,) = coverage_rows(connection, ["deployment"], Window(NOON - timedelta(days=20), NOON + timedelta(days=10)))
    assert named(row) == {"engine_unseen": (-70, -7)}
