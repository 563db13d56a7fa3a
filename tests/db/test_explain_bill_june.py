"""The generated June with a generated bill: from the invoice's total down, every cause named to the cent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from bill_takes import Takes
from explain_world import BEFORE, JUNE, SP, generate, generated_bill
from sqlalchemy import Engine, text

from control.explain_bill import NO_CHARGES, TOO_SHORT
from control.explain_facts import explain
from core.node_charge import NodeCharge
from core.windows import QUARTER_HOUR, Window
from models.node_charge_repo import replace_node_charges

pytestmark = pytest.mark.db
MAY = Window(JUNE.start.replace(month=5), JUNE.start)


@pytest.fixture
def billed(db: Engine, tmp_path: Path) -> Engine:
    """The ledger of the generated June, and the bill beside it."""
    generate(db)
    rows = generated_bill()
    takes = Takes(db, tmp_path, "aws-cur")
    for month in ("05", "06"):
        takes.rows([row for row in rows if row["lineItem/UsageStartDate"][5:7] == month], f"2026-{month}.csv")
    return db


def found(db: Engine, first: Window = BEFORE, second: Window = JUNE) -> tuple[dict[str, Any], dict[str, Any]]:
    with db.connect() as connection:
        answer = explain(connection, first, second)
    (bill,) = answer["bill"]["totals"]
    return answer, bill


def changes(rows: Sequence[Mapping[str, Any]], basis: str) -> dict[str, Decimal]:
    return {row["bucket"]: row[basis]["change"] for row in rows if row[basis]["change"]}


def test_the_bill_is_named_by_bucket_on_both_bases(billed: Engine) -> None:
    answer, bill = found(billed)
    assert (answer["bill"]["view"], answer["bill"]["reason"]) == ("usage", "")
    assert changes(bill["buckets"], "effective") == {
        "gpu": Decimal("2643.16"), "non_gpu": Decimal(2), "tax": Decimal(2), "credit": Decimal(-50),
    }  # fmt: skip
    assert changes(bill["buckets"], "billed") == {
        "gpu": Decimal("666.16"), "commitment_negation": Decimal(3277), "commitment_fee": Decimal(-1300),
        "non_gpu": Decimal(2), "tax": Decimal(2), "credit": Decimal(-50),
    }  # fmt: skip
    for basis in ("billed", "effective"):
        assert sum(changes(bill["buckets"], basis).values()) == bill[basis]["change"]


def test_the_causes_of_machine_time_are_named_to_the_cent(billed: Engine) -> None:
    _, bill = found(billed)
    effects = {row["effect"]: row["amount"] for row in bill["machine_effects"]}
    assert effects == {
        "coverage": Decimal("1977"), "rate": Decimal("496"), "new": Decimal("283.6"), "retired": Decimal("-113.44"),
    }  # fmt: skip
    assert bill["difference"] == 0
    assert {row["instance_type"]: set(row["effects"]) for row in bill["machine_types"]} == {
        "p4d.24xlarge": {"coverage"}, "p5.48xlarge": {"rate"}, "g5.12xlarge": {"new", "retired"},
    }  # fmt: skip
    assert bill["commitments"] == [{"commitment_id": SP, "hours_before": Decimal(100), "hours_after": Decimal(0)}]


def test_by_invoice_the_days_of_the_months_count(billed: Engine) -> None:
    answer, bill = found(billed, MAY, JUNE)
    assert answer["bill"]["view"] == "invoice"
    effects = {row["effect"]: row["amount"] for row in bill["machine_effects"]}
    assert "days" in effects
    assert sum(effects.values()) == Decimal("2643.16")


def test_charges_of_no_known_machine_are_bill_only_and_the_ledger_is_below(billed: Engine) -> None:
    answer, bill = found(billed)
    assert answer["bill_only"] == {"amount": bill["effective"]["change"], "reason": ""}
    ledger = {name: amounts["after"] for name, amounts in bill["ledger"].items()}
    assert ledger == {"held": 0, "not_held": 0, "by_rates": 280, "cost": 280}
    assert bill["ledger"]["cost"]["change"] == answer["totals"][0]["change"]


def test_a_matched_machine_leaves_the_bill_only_lines(billed: Engine) -> None:
    before, _ = found(billed)
    with billed.begin() as connection:
        delivery = connection.execute(text("SELECT id FROM bill_delivery WHERE billing_period = '2026-06-01'")).scalar_one()
        money = Decimal("3277")
        charge = NodeCharge(
            "lab", "n1", JUNE.start, "USD", money, money, None, None, Decimal(1), 8, "i-chat", "p4d.24xlarge", "", False, delivery
        )
        replace_node_charges(connection, delivery, [charge])
    after, bill = found(billed)
    assert after["bill_only"]["amount"] == before["bill_only"]["amount"] - money
    assert bill["ledger"]["not_held"]["after"] == money
    assert {row["bucket"]: row["effective"]["after"] for row in bill["bill_only"]}["gpu"] == Decimal("6850.8")


def test_without_charges_or_whole_days_it_says_why(billed: Engine) -> None:
    with billed.connect() as connection:
        none = explain(connection, Window(JUNE.end, JUNE.end + JUNE.duration), Window(JUNE.end, JUNE.end + JUNE.duration))
        short = explain(connection, Window(JUNE.start, JUNE.start + QUARTER_HOUR), JUNE)
    assert (none["bill"]["reason"], none["bill_only"]) == (NO_CHARGES, {"amount": None, "reason": NO_CHARGES})
    assert short["bill"]["reason"] == TOO_SHORT
