"""Charges, buckets and AWS's amortised recipe, on the reports of people it went wrong for (faults A, D, H of the fault log)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest
from bill_lines import cur_line, write_cur
from hypothesis import given, settings
from hypothesis import strategies as st

from core.aws_cost import AMOUNTS, OPTIONAL, RECIPES, UNUSED_RESERVATION, parts_of, recipe_name, recipes
from core.billing import BUCKETS, FAMILIES, KINDS, Charge, bucket_of, is_gpu_instance, known_list, savings
from core.errors import BadInput
from ingest.billing.adapter import BillOptions
from ingest.billing.charges import write_charges
from ingest.billing.lines import open_session, read_lines
from ingest.billing.registry import ADAPTERS
from ingest.billing.sql import bucket_sql, gpu_sql, string

D = Decimal
Row = tuple[str, Mapping[str, str]]


def sums(rows: Sequence[Row]) -> dict[str, Decimal]:
    """Of AWS rows (type, amounts): both bases, and the effective cost of each bucket, for GPU machines."""
    found = {"billed": D(0), "effective": D(0), "list": D(0)}
    for line_type, amounts in rows:
        for part in parts_of(line_type, {name: D(text) for name, text in amounts.items()}):
            found["billed"] += part.billed
            found["effective"] += part.effective
            found["list"] += part.list or D(0)
            bucket = part.bucket("gpu")
            found[bucket] = found.get(bucket, D(0)) + part.effective
    return found


def fee(total: str, used: str) -> Row:
    return "SavingsPlanRecurringFee", {"unblended": total, "sp_total": total, "sp_used": used}


def covered(cost: str, effective: str) -> Row:
    return "SavingsPlanCoveredUsage", {"unblended": cost, "sp_effective": effective, "public": cost}


def negation(cost: str) -> Row:
    return "SavingsPlanNegation", {"unblended": cost}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param(
            [fee("52.40", "52.40"), covered("78.60", "52.40"), negation("-78.60")],
            {"billed": "52.40", "effective": "52.40", "list": "78.60", "unused_commitment": "0", "gpu": "52.40"},
            id="A1: a plan's fee is not counted beside the effective cost",
        ),
        pytest.param(
            [fee("52.40", "26.20"), covered("39.30", "26.20"), negation("-39.30")],
            {"billed": "52.40", "effective": "52.40", "gpu": "26.20", "unused_commitment": "26.20"},
            id="A1, A6: what nobody used of a plan is a bucket of its own",
        ),
        pytest.param(
            [
                ("DiscountedUsage", {"unblended": "0", "ri_effective": "0.60"}),
                ("RIFee", {"unblended": "1.00", "ri_unused_recurring": "0.40"}),
            ],
            {"billed": "1.00", "effective": "1.00", "gpu": "0.60", "unused_commitment": "0.40", "commitment_fee": "0"},
            id="A8: usage under a reservation costs what it takes of it",
        ),
        pytest.param(
            [("SavingsPlanUpfrontFee", {"unblended": "8760"}), ("Fee:reservation", {"unblended": "100"})],
            {"billed": "8860", "effective": "0", "commitment_fee": "0"},
            id="money paid up front is cash now and cost later",
        ),
        pytest.param(
            [("Refund:savings_plan", {"unblended": "-500"}), ("Refund", {"unblended": "-5"})],
            {"billed": "-505", "effective": "-5", "refund": "-5"},
            id="a plan's upfront fee given back was never effective cost",
        ),
        pytest.param(
            [("Usage", {"unblended": "33.86"}), ("Credit", {"unblended": "-33.86"})],
            {"billed": "0.00", "effective": "0.00", "gpu": "33.86", "credit": "-33.86"},
            id="D2: credits do not hide usage",
        ),
        pytest.param(
            [("Usage", {"unblended": "100"}), ("Credit", {"unblended": "-30"})],
            {"billed": "70", "effective": "70", "credit": "-30"},
            id="D3: credits are not dropped",
        ),
        pytest.param(
            [
                ("Usage", {"unblended": "24.00"}),
                ("split", {"unblended": "0", "split_cost": "18.00", "split_unused": "6.00"}),
            ],
            {"billed": "24.00", "effective": "24.00", "split_memo": "0"},
            id="H6: pod rows are not added to their instance",
        ),
        pytest.param(
            [("Usage", {"unblended": "10"}), ("EdpDiscount", {"unblended": "-1"}), ("Tax", {"unblended": "0.9"})],
            {"billed": "9.9", "effective": "9.9", "discount": "-1", "tax": "0.9"},
            id="discounts and taxes are parts of both bases",
        ),
    ],
)
def test_the_amortised_recipe(rows: list[Row], expected: dict[str, str]) -> None:
    found = sums(rows)
    assert {name: found.get(name, D(0)) for name in expected} == {name: D(text) for name, text in expected.items()}


def test_split_cost_is_kept_beside() -> None:
    (pod,) = parts_of("split", {"unblended": D(0), "split_cost": D(18), "split_unused": D(6)})
    assert (pod.billed, pod.effective, pod.memo) == (0, 0, 24)


def test_net_prices_hold_the_discount_already() -> None:
    (discount,) = parts_of("EdpDiscount", {"unblended": D(-1)}, net=True)
    assert (discount.billed, discount.effective, discount.kind) == (0, 0, "discount")


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_a_cost_that_is_missing_is_an_error_and_never_zero(name: str) -> None:
    recipe = RECIPES[name]
    needed = {column for _, column in (*recipe.billed, *recipe.effective, *recipe.unused)} - OPTIONAL
    for column in needed:
        with pytest.raises(BadInput, match=column):
            parts_of(name, {other: D(1) for other in AMOUNTS if other != column})


@pytest.mark.parametrize(
    ("texts", "name"),
    [
        (("Usage", {"operation": "EKSPod-EC2"}), "split"),
        (("Fee", {}), "Fee"),
        (("Fee", {"reservation": "arn:aws-cn:ec2:…"}), "Fee:reservation"),
        (("Refund", {"product": "AmazonEC2"}), "Refund"),
        (
            ("Refund", {"product": "ComputeSavingsPlans", "description": "Refund for one-time fee for Savings Plan ID x"}),
            "Refund:savings_plan",
        ),
        (("SomethingNew", {}), "other"),
        (("split", {}), "other"),
    ],
)
def test_which_recipe_a_line_follows(texts: tuple[str, dict[str, str]], name: str) -> None:
    assert recipe_name(texts[0], **texts[1]) == name


def charge(kind: str, effective: str, list_cost: str | None, **more: str) -> Charge:
    known = None if list_cost is None else D(list_cost)
    return Charge(
        provider="solora", billing_account="a", billing_period=date(2026, 7, 1), charge_start=None, currency="USD", kind=kind,
        billed=D(0), effective=D(effective), list=known_list(kind, known, D(effective)), **more,  # type: ignore[arg-type]
    )  # fmt: skip


def test_a5_a_prepayment_and_what_it_pays_for_are_saved_on_once() -> None:
    prepaid = charge("commitment_purchase", "0", "500000")
    used = charge("usage", "50.00", "62.50", family="ai_api")
    found = savings([prepaid, used])
    assert (found.list, found.effective, found.saved) == (D("62.50"), D("50.00"), D("12.50"))


def test_an_unknown_list_price_is_no_saving() -> None:
    found = savings([charge("usage", "5", "0", family="gpu"), charge("usage", "3", "4", family="gpu")])
    assert (found.saved, found.rows_without_list, found.effective_without_list) == (1, 1, 5)


def test_savings_of_two_currencies_are_refused() -> None:
    other = Charge("x", "a", date(2026, 7, 1), None, "CNY", "usage", D(1), D(1))
    with pytest.raises(BadInput, match="currencies"):
        savings([other, charge("usage", "1", "1")])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("charge_class", ["", "Correction"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_charge_has_one_bucket_and_sql_says_the_same(kind: str, charge_class: str, family: str) -> None:
    bucket = bucket_of(kind, charge_class, family)
    assert bucket in BUCKETS
    query = f"SELECT {bucket_sql()} FROM (SELECT ? AS kind, ? AS charge_class, ? AS family)"
    assert duckdb.execute(query, [kind, charge_class, family]).fetchone() == (bucket,)


@pytest.mark.parametrize(
    ("provider", "instance", "gpu"),
    [
        ("aws", "p4d.24xlarge", True), ("aws", "p6-b200.48xlarge", True), ("aws", "g5.xlarge", True),
        ("aws", "ml.g6e.xlarge", True),
        ("aws", "trn1.32xlarge", True), ("aws", "m5.xlarge", False), ("aws", "db.r5.large", False), ("aws", "r6g.large", False),
        ("azure", "Standard_ND96asr_v4", True), ("azure", "Standard_D4s_v5", False), ("gcp", "a3-highgpu-8g", True),
        ("gcp", "n2-standard-4", False), ("alibaba", "ecs.gn7i-c8g1.2xlarge", True), ("", "p5.48xlarge", True), ("", "", False),
    ],
)  # fmt: skip
def test_machines_with_accelerators(provider: str, instance: str, gpu: bool) -> None:
    assert is_gpu_instance(provider, instance) is gpu
    assert duckdb.execute(f"SELECT {gpu_sql(string(instance), provider)}").fetchone() == (gpu,)


_AMOUNT = st.decimals(min_value=-10_000, max_value=10_000, places=10)
_LINES = st.lists(
    st.tuples(
        st.sampled_from([name for name in RECIPES if ":" not in name and name not in ("split", "other")] + ["New"]),
        st.fixed_dictionaries({column: _AMOUNT for column in AMOUNTS}),
        st.sampled_from(["BoxUsage:p4d.24xlarge", "USE1-UnusedBox:p4d.24xlarge", "Reservation:p4d.24xlarge", "EBS:VolumeUsage"]),
        st.sampled_from(["RunInstances", "EKSPod-EC2", ""]),
        st.sampled_from(["", "arn:aws:ec2:r"]),
    ),
    min_size=1,
    max_size=12,
)  # fmt: skip


@settings(max_examples=15, deadline=None)
@given(lines=_LINES, net=st.booleans())
def test_sql_and_core_make_the_same_charges(tmp_path_factory: pytest.TempPathFactory, lines: list, net: bool) -> None:
    """Two forms of one rule: row by row and to the last decimal; the charges of the lines add up to them."""
    folder = tmp_path_factory.mktemp("cur")
    rows = []
    expected = []
    for number, (line_type, amounts, usage_type, operation, reservation) in enumerate(lines, 1):
        rows.append(cur_line(line_type, amounts, net=net, usage_type=usage_type, operation=operation, reservation=reservation))
        name = recipe_name(line_type, operation=operation, reservation=reservation)
        unused = "UnusedBox" in usage_type
        family = "gpu" if "p4d" in usage_type else "other"
        for part in parts_of(name, amounts, net=net, unused_capacity=unused):
            if part.kind != "commitment_unused" or part.effective:
                expected.append((number, part.bucket(family), part.billed, part.effective, part.memo))
    found = charges_of(folder, rows, BillOptions(net=net))
    assert sorted(found) == sorted(expected)
    recipe_sums = recipes(net=net)
    billed = sum(
        (a["unblended"] for (t, a, _, o, r) in lines if recipe_sums[recipe_name(t, operation=o, reservation=r)].billed), D(0)
    )
    assert sum((row[2] for row in found), D(0)) == billed


def charges_of(
    folder: Path, rows: list[dict[str, str]], options: BillOptions
) -> list[tuple[int, str, Decimal, Decimal, Decimal]]:
    path = write_cur(folder / "cur.csv", rows)
    session = open_session(folder)
    lines = read_lines(session, [("cur.csv", path)], folder)
    write_charges(session, lines, ADAPTERS["aws-cur"].plan(lines.columns, options), folder, period=None)
    found: list[tuple[int, str, Decimal, Decimal, Decimal]] = session.execute(
        "SELECT line_row, bucket, billed, effective, memo FROM charges"
    ).fetchall()
    session.close()
    return found


def test_the_unused_reservation_pattern_is_one_for_both() -> None:
    for usage_type, unused in [
        ("UnusedBox:p5.48xlarge", True),
        ("USE1-UnusedDed:p5.48xlarge", True),
        ("BoxUsage:p5.48xlarge", False),
    ]:
        query = f"SELECT regexp_matches({string(usage_type)}, {string(UNUSED_RESERVATION)})"
        assert duckdb.execute(query).fetchone() == (unused,)
