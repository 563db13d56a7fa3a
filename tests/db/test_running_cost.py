"""Spend between closes: it moves with the next request, never falls within an open window, and the close replaces it."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from money_rows import LATER, T0, WINDOW, D, a10g, engine_runs, service, use
from sqlalchemy import Engine, text

from control.ledger_close import close_due
from control.running_cost import spend
from core.capacity import NodeService
from core.errors import BadInput
from core.money import money
from core.spend import Spend
from core.unit_cost import CostBasis
from core.usage import Deployment
from core.windows import QUARTER_HOUR, Window, period_window
from models.ledger_repo import ledger_windows
from models.rates_repo import add_rates, declare_service

pytestmark = pytest.mark.db

DAY = period_window("day", T0, "UTC")
NOW = T0 + timedelta(minutes=20)
OPEN = T0 + QUARTER_HOUR
TEAM = "tenant:acme/search"


@pytest.fixture
def priced(db: Engine) -> Engine:
    """One A10G at 1.006 USD/h in service since 12:00."""
    with db.begin() as connection:
        add_rates(connection, [a10g()], T0)
        declare_service(connection, service(), "test")
    return db


@pytest.fixture
def closed(priced: Engine) -> Engine:
    """12:00 to 12:15 is closed: half busy, 1,000 tokens in and 100 out of acme/search."""
    with priced.begin() as connection:
        use(connection)
        engine_runs(connection)
    close_due(priced, T0 + timedelta(minutes=30))
    return priced


def ask(engine: Engine, scope: str = TEAM, basis: CostBasis = "usage", now: datetime = LATER, window: Window = DAY) -> Spend:
    with engine.begin() as connection:
        return spend(connection, scope, window, basis, now)


def test_nothing_spent_is_zero_and_known(priced: Engine) -> None:
    found = ask(priced)
    assert (found.amount, found.reason, found.state) == (money(0, "USD"), "", "provisional")


def test_the_next_request_moves_the_spend_at_the_last_closed_unit_rate(closed: Engine) -> None:
    before = ask(closed)
    assert before.amount == money("0.12575", "USD")
    with closed.begin() as connection:
        use(connection, OPEN, input_uncached=2_000, output=200, kv_work_x2=840_000)
    after = ask(closed)
    assert after.running == money("0.2515", "USD")
    assert after.amount == money("0.37725", "USD")
    assert after.state == "estimate"


def test_within_an_open_window_it_never_falls(closed: Engine) -> None:
    seen: list[Decimal] = []
    for n in range(6):
        with closed.begin() as connection:
            use(connection, OPEN + timedelta(minutes=n), team="search" if n % 2 else "ads", input_uncached=500 * n + 1)
        seen.append(ask(closed, now=LATER + timedelta(minutes=n)).running.amount)
        seen.append(ask(closed, basis="allocation", now=LATER + timedelta(minutes=n)).running.amount)
    assert seen[0::2] == sorted(seen[0::2])
    assert seen[1::2] == sorted(seen[1::2])


def test_a_later_close_at_other_unit_rates_leaves_the_open_window_alone(closed: Engine) -> None:
    with closed.begin() as connection:
        use(connection, OPEN)
        use(connection, OPEN + QUARTER_HOUR)
    young = Window(OPEN + QUARTER_HOUR, OPEN + 2 * QUARTER_HOUR)
    first = ask(closed, window=young)
    with closed.begin() as connection:
        engine_runs(connection, at=OPEN, busy_us=1_000)
    close_due(closed, OPEN + timedelta(minutes=30))
    assert ask(closed, window=young).running == first.running


def test_the_close_replaces_the_estimate_and_shows_the_difference(closed: Engine) -> None:
    with closed.begin() as connection:
        use(connection, OPEN)
        engine_runs(connection, at=OPEN, busy_us=45_000_000)
    estimate = ask(closed).running
    close_due(closed, OPEN + timedelta(minutes=30))
    found = ask(closed, now=OPEN + timedelta(minutes=30))
    assert estimate == money("0.12575", "USD")
    assert found.running.amount == 0
    assert found.closed == money("0.314375", "USD")
    with closed.connect() as connection:
        shown = ledger_windows(connection, Window(OPEN, OPEN + QUARTER_HOUR))[0]["detail"]["running_cost"]
    assert (shown["estimate"], shown["closed"], shown["difference"]) == ("0.12575", "0.188625", "0.062875")


def test_before_any_close_engine_time_and_the_rate_card_price_the_work(priced: Engine) -> None:
    with priced.begin() as connection:
        use(connection, input_uncached=1_000, output=100)
        engine_runs(connection, minutes=2, prompt_tokens=500, prompt_tokens_computed=500, generation_tokens=50)
    found = ask(priced, now=NOW)
    assert found.running.amount == pytest.approx(Decimal("1.006") / 60, abs=Decimal("1e-11"))
    with priced.connect() as connection:
        source = connection.execute(text("SELECT source FROM running_rate")).scalar_one()
    assert source == "engine busy time x rate card (list 1:2 (last resort))"


def test_before_any_close_and_without_engine_data_the_time_requests_took_does(priced: Engine) -> None:
    with priced.begin() as connection:
        use(connection, duration_ms=30_000)
    assert ask(priced, now=NOW).running.amount == pytest.approx(Decimal("1.006") / 120, abs=Decimal("1e-11"))


def test_a_request_without_a_duration_is_priced_at_an_assumed_throughput_not_at_zero(priced: Engine) -> None:
    with priced.begin() as connection:
        use(connection, duration_ms=0)
    found = ask(priced, now=NOW).running.amount
    assert found == pytest.approx(Decimal("1.006") / 3600 * 1200 / 2000, abs=Decimal("1e-11"))


def test_without_a_price_the_spend_is_unknown_with_the_reason(db: Engine) -> None:
    with db.begin() as connection:
        declare_service(connection, service(), "test")
        use(connection)
    found = ask(db, now=NOW)
    assert found.amount is None
    assert "no list rate gpu_hour for A10G" in found.reason
    close_due(db, LATER)
    found = ask(db)
    assert found.amount is None
    assert found.reason.startswith(f"no price: 1 closed quarter hours of {D}")


def test_a_priced_part_beside_an_unpriced_one_is_a_lower_bound(closed: Engine) -> None:
    other = Deployment("lab", "prod", "other")
    with closed.begin() as connection:
        declare_service(connection, NodeService(other, "http://b", "node2", "TPU9", 1, T0), "test")
        use(connection, OPEN, model_id=other.model_id)
        use(connection, OPEN)
    found = ask(closed)
    assert found.amount == money("0.2515", "USD")
    assert found.reason.startswith("lower bound, without open work of lab/prod/other")


@pytest.mark.parametrize(
    ("scope", "basis", "closed_cost"),
    [
        ("tenant:acme", "usage", "0.12575"),
        ("tenant:acme/ads", "usage", "0"),
        ("tenant:acme", "allocation", "0.2515"),
        (f"deployment:{D}", "usage", "0.12575"),
        (f"deployment:{D}", "allocation", "0.2515"),
        ("service_tier:P1", "usage", "0.12575"),
        ("service_tier:P2", "usage", "0"),
        ("platform", "allocation", "0.2515"),
    ],
)
def test_scopes_and_bases(closed: Engine, scope: str, basis: CostBasis, closed_cost: str) -> None:
    assert ask(closed, scope, basis).closed == money(closed_cost, "USD")


@pytest.mark.parametrize("scope", [f"deployment:{D}", "platform"])
def test_on_allocation_basis_open_capacity_runs_with_the_clock(closed: Engine, scope: str) -> None:
    found = ask(closed, scope, "allocation", OPEN + timedelta(minutes=30))
    assert (found.running, found.amount) == (money("0.503", "USD"), money("0.7545", "USD"))


def test_a_budget_day_in_another_zone_takes_only_its_quarter_hours(closed: Engine) -> None:
    shanghai = period_window("day", T0 - timedelta(days=1), "Asia/Shanghai")
    assert shanghai.end == T0 + timedelta(hours=4) - timedelta(days=1)
    assert ask(closed, window=shanghai).closed == money(0, "USD")
    assert ask(closed, window=period_window("day", T0, "Asia/Shanghai")).closed == money("0.12575", "USD")
    assert ask(closed, window=period_window("month", T0, "Asia/Kathmandu")).closed == money("0.12575", "USD")
    assert ask(closed, window=WINDOW).closed == money("0.12575", "USD")


def test_two_currencies_are_not_added(closed: Engine) -> None:
    other = Deployment("lab", "prod", "other")
    with closed.begin() as connection:
        add_rates(connection, [a10g("8", currency="CNY", since=T0 - timedelta(days=1))], T0)
        add_rates(connection, [a10g("1.006", since=T0 + timedelta(days=1))], T0)
        declare_service(connection, NodeService(other, "http://b", "node2", "A10G", 1, T0), "test")
        use(connection, OPEN, model_id=other.model_id)
    found = ask(closed)
    assert found.amount is None
    assert "CNY and USD" in found.reason


def test_an_unknown_scope_is_refused(priced: Engine) -> None:
    with priced.begin() as connection, pytest.raises(BadInput, match="scope"):
        spend(connection, "team:acme", DAY, "usage", NOW)
