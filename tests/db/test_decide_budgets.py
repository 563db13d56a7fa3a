"""Use cases on budgets, increases, exemptions and limits: stored, versioned, audited, announced, and refused by field."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from decide_world import MIN, NOW, D, phases, price_and_node
from sqlalchemy import Connection, Engine, insert

from control.budgets import add_exemption, end_exemption, increase_cap, remove_budget, remove_limit, set_budget, set_limit
from core.errors import BadInput, CurrencyMismatch, NotFound, TokenfuseError
from core.money import money
from models.audit_repo import list_audit
from models.decide_repo import list_budgets, list_cap_increases, list_exemptions, list_limits
from models.partitions import ensure_months
from models.tables import UsageDayRow

pytestmark = pytest.mark.db
RED = "tenant:acme/red"


def budget(connection: Connection, amount: str = "100", scope: str = RED, period: str = "month", **more: Any) -> Any:
    return set_budget(connection, scope, period, Decimal(amount), "USD", "Asia/Tokyo", "ann", NOW, **more)


def test_a_change_is_a_new_version_and_the_same_again_is_not(db: Engine) -> None:
    with db.begin() as connection:
        first, same, second = budget(connection), budget(connection), budget(connection, "200", cap=Decimal("300"))
        assert (first.value.version, same.value.version, second.value.version) == (1, 1, 2)
        (found,) = list_budgets(connection)
        assert found == second.value
        assert (found.budget.cap, found.budget.cost_basis, found.budget.zone) == (money("300", "USD"), "usage", "Asia/Tokyo")
        assert [r.action for r in list_audit(connection)] == ["budget.set", "budget.set"]


def test_only_a_cap_makes_a_breaker_and_it_starts_in_shadow(db: Engine) -> None:
    with db.begin() as connection:
        budget(connection, scope="tenant:acme/blue")
        budget(connection, cap=Decimal("300"))
    assert phases(db) == {RED: "closed"}


def test_amounts_keep_every_decimal(db: Engine) -> None:
    with db.begin() as connection:
        budget(connection, "0.000000000001", cap=Decimal("99999999999999999999999999.999999999999"))
        (found,) = list_budgets(connection)
    assert found.budget.amount == money("0.000000000001", "USD")
    assert found.budget.cap == money("99999999999999999999999999.999999999999", "USD")


def test_an_unknown_tenant_or_model_is_a_warning(db: Engine) -> None:
    price_and_node(db)
    with db.begin() as connection:
        ensure_months(connection, [NOW])
        keys = {
            "cluster": "c",
            "namespace": "n",
            "model_id": "m",
            "project": "",
            "user_id": "",
            "key_id": "",
            "service_tier": "P1",
        }
        row = {"day": NOW.replace(hour=0, minute=0), "org": "acme", "team": "red", "status": "ok", "usage_source": "exact"}
        connection.execute(insert(UsageDayRow).values(**keys, **row, workload_class=0))
        known = [RED, "tenant:acme", f"deployment:{D}", "deployment:c/n/m", "platform", "service_tier:P2"]
        unknown = ["tenant:acmee", "tenant:acme/red/p1", "deployment:c/n/other"]
        warned = {s: budget(connection, scope=s, owner="ops").warnings for s in known + unknown}
    assert {s for s, w in warned.items() if w} == set(unknown)
    assert warned["tenant:acmee"] == ("nothing was ever seen of tenant:acmee: check its spelling",)


def test_a_cap_below_the_amount_is_a_warning(db: Engine) -> None:
    with db.begin() as connection:
        assert any("before the plan is spent" in w for w in budget(connection, cap=Decimal(50)).warnings)


def test_a_removed_budget_is_gone_and_can_come_back(db: Engine) -> None:
    with db.begin() as connection:
        budget(connection)
        remove_budget(connection, RED, "month", "ann", NOW)
        assert list_budgets(connection) == []
        with pytest.raises(NotFound, match="no month budget"):
            remove_budget(connection, RED, "month", "ann", NOW)
        assert budget(connection).value.version == 2


def test_increases_and_exemptions_end_by_themselves(db: Engine) -> None:
    until = NOW + timedelta(hours=2)
    with db.begin() as connection:
        budget(connection, cap=Decimal(100))
        increase_cap(connection, RED, "month", Decimal(20), "USD", until, "ann", "launch", NOW)
        add_exemption(connection, RED, "bob", "board demo", until, "ann", NOW)
        early = add_exemption(connection, "tenant:acme/blue", "bob", "x", until, "ann", NOW).value
        assert [len(list_cap_increases(connection, at)) for at in (NOW, until - MIN, until)] == [1, 1, 0]
        assert [len(list_exemptions(connection, at)) for at in (NOW, until - MIN, until)] == [2, 2, 0]
        end_exemption(connection, early.id, "ann", NOW + MIN)
        assert [e.scope for e in list_exemptions(connection, NOW + MIN)] == [RED]
        with pytest.raises(NotFound, match="no exemption"):
            end_exemption(connection, early.id, "ann", NOW + MIN)


def test_a_limit_is_replaced_in_place_and_removed(db: Engine) -> None:
    with db.begin() as connection:
        set_limit(connection, "service_tier:P2", "max_prompt_tokens", 4096, "warn", "ann", NOW)
        set_limit(connection, "service_tier:P2", "max_prompt_tokens", 2048, "enforce", "bob", NOW + MIN)
        (limit,) = list_limits(connection)
        assert (limit.value, limit.mode, limit.updated_by) == (2048, "enforce", "bob")
        remove_limit(connection, "service_tier:P2", "max_prompt_tokens", "ann", NOW)
        assert list_limits(connection) == []
        with pytest.raises(NotFound, match="no limit"):
            remove_limit(connection, "service_tier:P2", "max_prompt_tokens", "ann", NOW)


SOON = NOW + MIN
NAIVE = SOON.replace(tzinfo=None)


@pytest.mark.parametrize(
    ("act", "error", "field"),
    [
        (lambda c: budget(c, "0"), BadInput, "amount"),
        (lambda c: budget(c, "NaN"), BadInput, "amount"),
        (lambda c: budget(c, "Infinity"), BadInput, "amount"),
        (lambda c: budget(c, cap=Decimal(-1)), BadInput, "cap"),
        (lambda c: budget(c, scope="team:red"), BadInput, "scope"),
        (lambda c: budget(c, period="decade"), BadInput, "period"),
        (lambda c: budget(c, cost_basis="cash"), BadInput, "cost_basis"),
        (lambda c: budget(c, scope="platform"), BadInput, "owner"),
        (lambda c: budget(c, owner="a\x00b"), BadInput, "owner"),
        (lambda c: set_budget(c, RED, "day", Decimal(1), "usd", "UTC", "ann", NOW), BadInput, "currency"),
        (lambda c: set_budget(c, RED, "day", Decimal(1), "USD", "Mars", "ann", NOW), BadInput, "zone"),
        (lambda c: set_budget(c, RED, "day", Decimal(1), "USD", "UTC", " ", NOW), BadInput, "actor"),
        (lambda c: increase_cap(c, RED, "month", Decimal(0), "USD", SOON, "ann", "x", NOW), BadInput, "extra"),
        (lambda c: increase_cap(c, RED, "month", Decimal(1), "USD", NOW, "ann", "x", NOW), BadInput, "expires_at"),
        (lambda c: increase_cap(c, RED, "month", Decimal(1), "USD", NAIVE, "ann", "x", NOW), BadInput, "expires_at"),
        (lambda c: increase_cap(c, RED, "month", Decimal(1), "USD", SOON, "", "x", NOW), BadInput, "approver"),
        (lambda c: increase_cap(c, RED, "month", Decimal(1), "USD", SOON, "ann", "", NOW), BadInput, "reason"),
        (lambda c: increase_cap(c, RED, "month", Decimal(1), "EUR", SOON, "ann", "x", NOW), CurrencyMismatch, "currency"),
        (lambda c: add_exemption(c, "platform", "bob", "x", SOON, "ann", NOW), BadInput, "scope"),
        (lambda c: add_exemption(c, RED, "", "x", SOON, "ann", NOW), BadInput, "owner"),
        (lambda c: add_exemption(c, RED, "bob", "x" * 501, SOON, "ann", NOW), BadInput, "reason"),
        (lambda c: add_exemption(c, RED, "bob", "x", NOW, "ann", NOW), BadInput, "expires_at"),
        (lambda c: set_limit(c, RED, "max_fun", 1, "warn", "ann", NOW), BadInput, "name"),
        (lambda c: set_limit(c, RED, "max_prompt_tokens", 0, "warn", "ann", NOW), BadInput, "value"),
        (lambda c: set_limit(c, RED, "max_prompt_tokens", 1.5, "warn", "ann", NOW), BadInput, "value"),
        (lambda c: set_limit(c, RED, "max_prompt_tokens", 1, "maybe", "ann", NOW), BadInput, "mode"),
    ],
)  # fmt: skip
def test_bad_values_name_their_field_and_change_nothing(
    db: Engine, act: Callable[[Connection], Any], error: type[TokenfuseError], field: str
) -> None:
    with db.begin() as connection:
        budget(connection, cap=Decimal(100))
    with db.connect() as connection, pytest.raises(error) as raised:
        act(connection)
    assert isinstance(raised.value, BadInput)
    assert raised.value.field == field
    with db.connect() as connection:
        assert len(list_audit(connection)) == 1


def test_an_increase_needs_a_capped_budget(db: Engine) -> None:
    with db.begin() as connection, pytest.raises(NotFound, match="no month budget with a cap"):
        increase_cap(connection, RED, "month", Decimal(1), "USD", SOON, "ann", "x", NOW)


def test_every_change_wakes_the_control_loop_when_it_commits(db: Engine, db_url: str) -> None:
    with psycopg.connect(db_url, autocommit=True) as listener:
        listener.execute("LISTEN tokenfuse_settings")
        with db.begin() as connection:
            budget(connection)
        (note,) = listener.notifies(timeout=10, stop_after=1)
    assert note.payload == "budget.set"
