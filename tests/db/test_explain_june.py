"""The generated June costs 40 % more by three known causes: they are named with their money to the cent."""

from __future__ import annotations

from decimal import Decimal

import pytest
from explain_world import BEFORE, JUNE, generate
from sqlalchemy import Engine, text

from control.explain_bill import NO_BILL
from control.explain_facts import explain
from control.ledger_close import close_all
from core.errors import BadInput
from core.windows import Window

pytestmark = pytest.mark.db
CENT = Decimal("0.01")


def cents(effects: dict[str, Decimal]) -> dict[str, Decimal]:
    return {name: rounded for name, amount in effects.items() if (rounded := amount.quantize(CENT))}


def test_june_is_named_to_the_cent(db: Engine) -> None:
    generate(db)
    with db.connect() as connection:
        found = explain(connection, BEFORE, JUNE)
    (total,) = found["totals"]
    assert (total["before"], total["after"], total["change_percent"]) == (Decimal(200), Decimal(280), Decimal(40))
    assert cents({row["effect"]: row["amount"] for row in total["effects"]}) == {
        "rate": Decimal("20.00"),
        "idle": Decimal("20.00"),
        "volume": Decimal("8.33"),
        "cache": Decimal("31.67"),
    }
    assert sum(row["amount"] for row in total["effects"]) == Decimal(80)
    assert total["difference"] == 0
    assert [(row["gpu_type"], row["amount"]) for row in found["prices"]] == [("H100", Decimal(20))]
    assert {row["deployment"]: cents(row["effects"]) for row in found["rows"]} == {
        "lab/prod/docs": {"volume": Decimal("8.33"), "cache": Decimal("31.67")},
        "lab/prod/chat": {"idle": Decimal("20.00")},
        "lab/prod/code": {"rate": Decimal("20.00")},
    }
    assert found["bill_only"] == {"amount": None, "reason": NO_BILL}
    assert found["unpriced"] == []


@pytest.mark.parametrize("by", ["tenant", "model"])
def test_who_moved_adds_up_to_the_change(db: Engine, by: str) -> None:
    generate(db)
    with db.connect() as connection:
        found = explain(connection, BEFORE, JUNE, by)  # type: ignore[arg-type]
    assert sum(row["change"] for row in found["rows"]) == Decimal(80)
    assert found["rows"][0][by] == ("acme/docs" if by == "tenant" else "docs")
    assert found["rows"][0]["change"] == Decimal(40)


def test_looking_back_negates_every_effect(db: Engine) -> None:
    generate(db)
    with db.connect() as connection:
        there, back = explain(connection, BEFORE, JUNE), explain(connection, JUNE, BEFORE)
    effects = [{row["effect"]: row["amount"] for row in found["totals"][0]["effects"]} for found in (there, back)]
    assert effects[1] == {name: -amount for name, amount in effects[0].items()}


def test_a_period_without_cost_is_all_new_and_has_no_percentage(db: Engine) -> None:
    generate(db)
    with db.connect() as connection:
        found = explain(connection, Window(BEFORE.start - BEFORE.duration, BEFORE.start), BEFORE)
        empty = explain(
            connection, Window(JUNE.end, JUNE.end + JUNE.duration), Window(BEFORE.start - JUNE.duration, BEFORE.start)
        )
    (total,) = found["totals"]
    assert [(row["effect"], row["amount"]) for row in total["effects"]] == [("new", Decimal(200))]
    assert (total["change_percent"], total["reasons"]["change_percent"]) == (None, "the first period has no cost")
    assert empty["totals"] == []


def test_cost_without_a_known_inventory_is_not_split(db: Engine) -> None:
    generate(db)
    with db.begin() as connection:
        connection.execute(text("DELETE FROM node_service WHERE model_id = 'docs'"))
        found = explain(connection, BEFORE, JUNE, "model")
    assert found["rows"][0]["effects"] == {"unsplit": Decimal(40)}


def test_an_unknown_key_is_refused(db: Engine) -> None:
    with db.connect() as connection, pytest.raises(BadInput, match="known: tenant, deployment, model"):
        explain(connection, BEFORE, JUNE, "colour")  # type: ignore[arg-type]


def test_splitting_a_tenant_leaves_the_total_and_its_causes(db: Engine) -> None:
    generate(db)
    with db.begin() as connection:
        before = explain(connection, BEFORE, JUNE, "tenant")
        split = "UPDATE usage_minute SET team = team || extract(minute FROM minute) WHERE team = 'docs'"
        connection.execute(text(split))
    assert close_all(db, JUNE.end, since=BEFORE.start).failures == []
    with db.connect() as connection:
        after = explain(connection, BEFORE, JUNE, "tenant")
    assert after["totals"] == before["totals"]
    assert (len(before["rows"]), len(after["rows"])) == (3, 6)
    assert sum(row["change"] for row in after["rows"]) == Decimal(80)
