"""The generated AWS month keeps the identities of real bills, and its folders are laid out as AWS lays them out."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from cli.demo.aws_commitments import CAPACITY, NO_UPFRONT, PART_UPFRONT, RESERVED, RESERVED_UPFRONT, TERM_HOURS
from cli.demo.aws_export import REPORT, write_delivery
from cli.demo.aws_lines import CurLine
from cli.demo.aws_machines import JULY
from cli.demo.aws_month import Account, Delivery, july_deliveries
from cli.demo.aws_truth import truth
from core.billing import BUCKETS
from core.money import ZERO
from ingest.billing.layouts import find_deliveries
from ingest.billing.stores import LocalFiles

ACCOUNT = Account()
DELIVERIES = july_deliveries()
every_delivery = pytest.mark.parametrize("delivery", DELIVERIES, ids=lambda d: f"delivery-{d.number}")


def of_commitment(lines: Iterable[CurLine], arn: str) -> tuple[Decimal, Decimal]:
    """Billed and effective cost of what names it."""
    said = [says for line in lines if arn in map(str, line.more.values()) for says in line.says]
    return sum((s.billed for s in said), ZERO), sum((s.effective for s in said), ZERO)


@every_delivery
def test_a_plan_without_upfront_is_spread_over_what_used_it_and_what_nobody_did(delivery: Delivery) -> None:
    billed, effective = of_commitment(ACCOUNT.lines(delivery), NO_UPFRONT)
    assert billed == effective != 0


@every_delivery
def test_a_plan_with_upfront_differs_by_what_is_paid_ahead(delivery: Delivery) -> None:
    billed, effective = of_commitment(ACCOUNT.lines(delivery), PART_UPFRONT)
    hours = (delivery.span.end - delivery.span.start).total_seconds() / 3600
    hourly = Decimal("0.633780") * Decimal("1.1") / 2
    paid = hourly * TERM_HOURS if delivery.period == date(2026, 7, 1) else ZERO
    assert billed - effective == paid - hourly * int(hours)


@every_delivery
def test_the_reserved_instance_adds_what_was_paid_before(delivery: Delivery) -> None:
    billed, effective = of_commitment(ACCOUNT.lines(delivery), RESERVED)
    month, past = (int((end - delivery.month.start).total_seconds()) // 3600 for end in (delivery.month.end, delivery.span.end))
    fee = billed / month
    assert (fee * month, effective) == (billed, (fee + RESERVED_UPFRONT) * past)


@every_delivery
def test_negations_cancel_the_covered_usage(delivery: Delivery) -> None:
    lines = ACCOUNT.lines(delivery)
    covered = sum((line.unblended for line in lines if line.line_type == "SavingsPlanCoveredUsage"), ZERO)
    negated = sum((line.unblended for line in lines if line.line_type == "SavingsPlanNegation"), ZERO)
    assert covered == -negated != 0


@every_delivery
def test_split_rows_repeat_their_machine_and_cost_nothing(delivery: Delivery) -> None:
    lines = ACCOUNT.lines(delivery)
    split = [line for line in lines if line.operation == "EKSPod-EC2"]
    parents = {m.resource: m.node for m in JULY if m.pods}
    machines = truth(lines).machines
    for hour in {line.start for line in split}:
        memo = sum((says.memo for line in split if line.start == hour for says in line.says), ZERO)
        assert memo == sum((machines[node, hour][1] for node in parents.values()), ZERO)
    assert {line.more["splitLineItem/ParentResourceId"] for line in split} == set(parents)
    assert sum((line.unblended for line in split), ZERO) == 0


@every_delivery
def test_the_reservations_own_rows_cost_nothing_and_repeat_hours(delivery: Delivery) -> None:
    lines = [line for line in ACCOUNT.lines(delivery) if line.resource == CAPACITY]
    itself = [line for line in lines if line.usage_type.startswith("Reservation:")]
    unused = [line for line in lines if line.usage_type.startswith("UnusedBox:")]
    used = [line for line in ACCOUNT.lines(delivery) if line.node == "p5-a" and line.line_type == "Usage" and line.usage]
    assert sum(line.usage for line in itself) == sum(line.usage for line in unused) + sum(line.usage for line in used)
    assert sum((line.unblended for line in itself), ZERO) == 0


@every_delivery
def test_truth_is_every_cent_once(delivery: Delivery) -> None:
    lines = ACCOUNT.lines(delivery)
    found = truth(lines)
    assert found.billed == sum((line.unblended for line in lines), ZERO)
    assert set(found.buckets) <= set(BUCKETS)
    assert tuple(sum(pair) for pair in zip(*found.months.values(), strict=True)) == (found.billed, found.effective)


def test_deliveries_restate_each_other_and_only_the_last_of_july_is_final() -> None:
    first, second, third, august = (truth(ACCOUNT.lines(d)) for d in DELIVERIES)
    assert len({found.billed for found in (first, second, third)}) == 3
    assert [bool(d.invoice) for d in DELIVERIES] == [False, False, True, False]
    assert august.months[datetime(2026, 7, 1, tzinfo=UTC)] == (Decimal("-11.11"), Decimal("-11.11"))
    assert {"credit", "refund", "tax", "discount", "unused_reservation", "unknown", "vendor_api"} <= set(third.buckets)


def test_the_same_seed_gives_the_same_lines_and_another_seed_others() -> None:
    assert Account().lines(DELIVERIES[2]) == Account().lines(DELIVERIES[2])
    assert Account(seed=1).lines(DELIVERIES[2]) != Account().lines(DELIVERIES[2])


@pytest.mark.parametrize("spelling", ["legacy", "cur2"])
def test_folders_are_found_by_their_manifests_and_say_that_they_are_generated(tmp_path: Path, spelling: str) -> None:
    for delivery in DELIVERIES:
        export = write_delivery(tmp_path, ACCOUNT, delivery, spelling)  # type: ignore[arg-type]
    found = find_deliveries(LocalFiles(export), needs_manifest=True)
    assert [(one.export, one.period, one.missing) for one in found] == [
        (REPORT, date(2026, 7, 1), ()), (REPORT, date(2026, 8, 1), ()),
    ]  # fmt: skip
    assert [one.delivery_id.rpartition("-")[2] for one in found] == ["03", "04"]
    assert REPORT.startswith("generated-")
    for one in found:
        for key in one.keys:
            (folder,) = [path for path in export.rglob(Path(key).name) if str(path).endswith(key)]
            with gzip.open(folder, "rt") as file:
                assert {row["x_generated"] for row in csv.DictReader(file)} == {"true"}


def test_cur2_holds_products_and_tags_as_maps(tmp_path: Path) -> None:
    export = write_delivery(tmp_path, ACCOUNT, DELIVERIES[0], "cur2")
    (path, *_) = sorted(export.rglob("*.csv.gz"))
    with gzip.open(path, "rt") as file:
        row = next(csv.DictReader(file))
    assert json.loads(row["product"]) == {"instance_type": "p4d.24xlarge", "region": "us-east-1"}
    assert json.loads(row["resource_tags"]) == {"user_name": JULY[0].node}
    assert "savings_plan_savings_plan_a_r_n" in row
