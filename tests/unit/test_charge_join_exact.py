"""Whole deliveries in DuckDB: node charges and unmatched charges add up to the joined charges, and each hour is the rule's."""

from __future__ import annotations

import csv
import json
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.charge_join import ADJUSTING, JOINED, Machine, Node, PersonMatch
from core.hour_shares import hour_shares
from core.money import ZERO, total
from core.windows import Window
from ingest.billing.charge_join import DeliveryJoin, JoinWith
from ingest.billing.lines import open_session
from models.join_repo import NODE_CHARGE_COLUMNS, UNMATCHED_COLUMNS

T0 = datetime(2026, 7, 1, tzinfo=UTC)
NAIVE = T0.replace(tzinfo=None)
JULY = date(2026, 7, 1)
COLUMNS = {
    "provider": "VARCHAR", "resource_id": "VARCHAR", "instance_type": "VARCHAR", "account": "VARCHAR", "region": "VARCHAR",
    "bucket": "VARCHAR", "currency": "VARCHAR", "tags": "VARCHAR", "charge_start": "TIMESTAMP", "charge_end": "TIMESTAMP",
    "delivery_period": "DATE",
}  # fmt: skip
COSTS = ("billed", "effective", "list", "contracted")
Row = dict[str, Any]


def row(cost: str = "1.00", start: datetime | None = NAIVE, hours: float | None = 1, resource: str = "i-1", **more: Any) -> Row:
    end = None if start is None or hours is None else start + timedelta(hours=hours)
    base: Row = {
        "provider": "aws", "resource_id": resource, "instance_type": "p4d.24xlarge", "account": "1", "region": "r",
        "bucket": "gpu", "currency": "USD", "tags": "{}", "charge_start": start, "charge_end": end, "delivery_period": JULY,
        "hours": Decimal(1),
        "billed": Decimal(cost), "effective": Decimal(cost), "list": None, "contracted": Decimal(cost),
    }  # fmt: skip
    return {**base, **more}


def joined(rows: Sequence[Row], given: JoinWith, scale: int = 9) -> tuple[list[Mapping[str, str]], list[Mapping[str, str]]]:
    """Node charges and unmatched charges of a delivery of these rows."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        session = open_session(folder)
        money = ", ".join(f"{cost} DECIMAL(38, {scale})" for cost in (*COSTS, "hours"))
        session.execute(f"CREATE TABLE t ({', '.join(f'{c} {kind}' for c, kind in COLUMNS.items())}, {money})")
        names = (*COLUMNS, *COSTS, "hours")
        marks = ", ".join("?" for _ in names)
        session.executemany(f"INSERT INTO t VALUES ({marks})", [[one[n] for n in names] for one in rows])
        session.execute(f"COPY t TO '{folder / 'charges.parquet'}' (FORMAT parquet)")
        join = DeliveryJoin(session, folder / "charges.parquet", JULY, folder)
        files = join.write(join.judge(given), 7)
        session.close()
        return _read(files[0], NODE_CHARGE_COLUMNS), _read(files[1], UNMATCHED_COLUMNS)


def _read(path: Path, columns: Sequence[str]) -> list[Mapping[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return [dict(zip(columns, cells, strict=True)) for cells in csv.reader(file)]


def against(*matches: PersonMatch, tags: tuple[str, ...] = ()) -> JoinWith:
    return JoinWith((Machine(Node("lab", "n1"), T0, provider_id="i-1"), Machine(Node("lab", "n2"), T0)), matches, tags)


def sums(rows: Sequence[Mapping[str, Any]], cost: str) -> dict[str, Decimal]:
    return {
        currency: total(Decimal(r[cost]) for r in rows if r["currency"] == currency) for currency in {r["currency"] for r in rows}
    }


ROWS = st.builds(
    row,
    cost=st.decimals(-(10**6), 10**6, places=14).map(str),
    start=st.none() | st.integers(0, 10**6).map(lambda s: NAIVE + timedelta(seconds=s)),
    hours=st.none() | st.sampled_from([0.25, 1, 3, 24, 31 * 24]),
    resource=st.sampled_from(["i-1", "i-2", "i-9", "cr-1", ""]),
    bucket=st.sampled_from([*JOINED, *ADJUSTING, "tax", "split_memo", "non_gpu"]),
    currency=st.sampled_from(["USD", "CNY"]),
    tags=st.sampled_from(["{}", json.dumps({"aws:eks:node": "n2"}), json.dumps({"Name": "n1"})]),
    instance_type=st.sampled_from(["p4d.24xlarge", ""]),
)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=st.lists(ROWS, min_size=1, max_size=12), said=st.sampled_from(["i-9", "cr-1", "i-1"]), when=st.integers(0, 300))
def test_node_charges_and_unmatched_ones_are_the_joined_charges(rows: list[Row], said: str, when: int) -> None:
    person = PersonMatch(1, said, Node("lab", "n2"), T0 + timedelta(hours=when))
    charged, rest = joined(rows, against(person), scale=14)
    machines = {(r["resource_id"]) for r in rows if r["resource_id"] and (r["bucket"] in JOINED or _adjusts_machine(r))}
    owned = {r["resource_id"] for r in charged} | {"i-1", said}
    ours = [
        r
        for r in rows
        if r["bucket"] in JOINED or (r["bucket"] in ADJUSTING and r["resource_id"] and r["resource_id"] in machines | owned)
    ]
    for cost in ("billed", "effective", "contracted"):
        assert sums([*charged, *rest], cost) == sums(ours, cost)
    assert total(Decimal(r["hours"]) for r in (*charged, *rest)) == total(r["hours"] for r in ours)
    assert not [r for r in charged if r["bucket"] == "unused_reservation" and r["matched_by"] != "person"]


def _adjusts_machine(one: Row) -> bool:
    return one["bucket"] in ADJUSTING and bool(one["instance_type"])


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    cost=st.decimals(-(10**9), 10**9, places=17),
    start=st.integers(0, 10**6),
    minutes=st.integers(61, 60 * 24 * 40),
)
def test_each_hour_has_what_the_rule_gives_it(cost: Decimal, start: int, minutes: int) -> None:
    begin = NAIVE + timedelta(seconds=start)
    charged, rest = joined([row(str(cost), begin, minutes / 60)], against(), scale=17)
    window = Window(begin.replace(tzinfo=UTC), (begin + timedelta(hours=minutes / 60)).replace(tzinfo=UTC))
    assert rest == []
    found = {datetime.fromisoformat(r["hour"]): Decimal(r["effective"]) for r in charged}
    assert found == hour_shares(cost, window)


@pytest.mark.parametrize(
    ("start", "hours", "hour"),
    [(NAIVE + timedelta(minutes=20), 0.5, 0), (NAIVE, None, 0), (NAIVE + timedelta(hours=3), 0.0, 3)],
)
def test_a_charge_within_an_hour_or_without_an_end_is_that_hours(start: datetime, hours: float | None, hour: int) -> None:
    charged, _ = joined([row("2.5", start, hours)], against())
    assert [(r["hour"], Decimal(r["effective"]), r["gpus"]) for r in charged] == [
        (f"2026-07-01T{hour:02}:00:00Z", Decimal("2.5"), "8")
    ]


def test_f8_charges_that_name_no_resource_stay_in_the_sum() -> None:
    """Three rows, one without an id: an inner join would drop it."""
    charged, rest = joined([row("1"), row("2", resource="i-9"), row("4", resource="")], against())
    assert [Decimal(r["effective"]) for r in charged] == [Decimal(1)]
    assert {r["reason"]: Decimal(r["effective"]) for r in rest} == {"no machine": Decimal(2), "names no machine": Decimal(4)}


def test_h6_split_rows_are_never_added_to_their_instance() -> None:
    """An instance of 24.00 whose pods' rows repeat 18.00 + 6.00."""
    split = {"bucket": "split_memo", "resource_id": "arn:aws:eks:r:1:pod/c/ns/p/u"}
    charged, rest = joined([row("24.00"), row("0", **split), row("0", **split)], against())
    assert total(Decimal(r["effective"]) for r in charged) == Decimal("24.00")
    assert rest == []


def test_a_match_holds_from_its_hour_on() -> None:
    said = PersonMatch(1, "i-9", Node("lab", "n2"), T0 + timedelta(hours=10), T0 + timedelta(hours=12))
    charged, rest = joined([row("24", NAIVE, 24, "i-9")], against(said))
    assert [(r["hour"], r["matched_by"]) for r in sorted(charged, key=lambda r: r["hour"])] == [
        ("2026-07-01T10:00:00Z", "person"), ("2026-07-01T11:00:00Z", "person"),
    ]  # fmt: skip
    assert [Decimal(r["effective"]) for r in rest] == [Decimal(22)]


def test_adjustments_follow_their_machine_and_others_are_the_accounts() -> None:
    credit = {"bucket": "credit", "instance_type": ""}
    charged, rest = joined(
        [
            row("10"),
            row("-3", **credit),
            row("-2", resource="nat-1", **credit),
            row("5", resource="i-9"),
            row("-1", resource="i-9", **credit),
        ],
        against(),
    )
    assert {(r["bucket"], r["instance_type"]): Decimal(r["effective"]) for r in charged} == {
        ("gpu", "p4d.24xlarge"): Decimal(10), ("credit", "p4d.24xlarge"): Decimal(-3),
    }  # fmt: skip
    assert {(r["resource_id"], r["bucket"]): Decimal(r["effective"]) for r in rest} == {
        ("i-9", "gpu"): Decimal(5), ("i-9", "credit"): Decimal(-1),
    }  # fmt: skip


def test_a_list_price_that_is_unknown_in_part_is_unknown() -> None:
    known = [row("1", list=Decimal(2)), row("1", list=Decimal(3))]
    (whole,), _ = joined(known, against())
    assert Decimal(whole["list"]) == Decimal(5)
    (part,), _ = joined([*known, row("1")], against())
    assert part["list"] == "\\N"


def test_lines_without_a_resource_are_matched_by_their_tags() -> None:
    tagged = row("3", resource="", tags=json.dumps({"user:rack": "n2", "team": "a"}))
    charged, _ = joined([tagged], against(tags=("rack",)))
    assert [(r["node"], r["resource_id"], r["matched_by"]) for r in charged] == [("n2", "", "name")]
    assert total([Decimal(r["effective"]) for r in charged]) != ZERO
