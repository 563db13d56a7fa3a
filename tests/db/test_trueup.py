"""Bills price the ledger: an estimate, its true-up, then final, each a version; decisions stay on what rates said."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from charge_rows import HOUR, add_node_charges, bill, machine_hours, make_final, node_charge, versions_of
from money_rows import D, a10g, engine_runs, use
from sqlalchemy import Engine

from api.budget_view import budget_row
from control.budget_standing import keep_standings, kept_standings
from control.budget_watch import read_spend, watch
from control.budgets import set_budget
from control.ledger_close import close_due, ledger_show
from control.running_cost import SpendAsk, spend_many
from core.breaker_values import BreakerPolicy
from core.budgets import Budget
from core.capacity import NodeService
from core.money import money
from core.scopes import parse_scope
from core.usage import Deployment
from core.windows import QUARTER_HOUR, Window
from models.decide_repo import list_budgets
from models.ledger_repo import ledger_rows, ledger_windows, unit_cost_rows
from models.rates_repo import add_rates, declare_service
from models.trueup_repo import charged_ledger, node_money, standing

pytestmark = pytest.mark.db
T0 = datetime(2026, 7, 1, 12, tzinfo=UTC)
LATER = T0 + HOUR + timedelta(minutes=20)
WINDOW = Window(T0, T0 + HOUR)


@pytest.fixture
def closed(db: Engine) -> Engine:
    """One A10G at 1.006 USD/h list, in service for an hour with a tenant's work in its first quarter, closed."""
    with db.begin() as connection:
        add_rates(connection, [a10g(since=T0 - timedelta(days=30))], T0)
        declare_service(connection, NodeService(D, "http://engine", "node1", "A10G", 1, T0, T0 + HOUR), "test")
        use(connection, T0)
        engine_runs(connection, at=T0, prompt_tokens=100, generation_tokens=10)
    assert close_due(db, LATER).closed == 4
    return db


def test_the_estimate_and_the_true_up_are_versions_one_and_two(closed: Engine) -> None:
    """H3: the bill counts, 0.52 amortised for an hour of 1.006 at list; the list price stays visible as the estimate."""
    with closed.begin() as connection:
        machine_hours(connection, bill(connection, LATER), LATER, T0, effective="0.52")
    assert close_due(closed, LATER).reclosed == 4
    with closed.connect() as connection:
        first, second = versions_of(connection, T0)
        windows = ledger_windows(connection, Window(T0, T0 + QUARTER_HOUR))
        shown = ledger_show(connection, WINDOW)
    assert tuple(first) == (1, "provisional", Decimal("0.2515"), None, None, "test card (list)")
    assert tuple(second) == (2, "trued_up", Decimal("0.13"), Decimal("0.13"), Decimal("0.2515"), "aws cur 2026-07 v1 (effective)")
    assert windows[0]["detail"]["trueup"] == {"estimate": "0.2515", "difference": "-0.1215", "price_source": "test card (list)"}
    assert [(t["capacity_cost"], t["difference"]) for t in shown["totals"]] == [(Decimal("0.52"), Decimal(0))]
    assert shown["states"] == [
        {
            "state": "trued_up", "currency": "USD", "windows": 4, "capacity_cost": Decimal("0.52"),
            "charged_cost": Decimal("0.52"), "estimate_cost": Decimal("1.006"), "trueup": Decimal("-0.486"),
        }
    ]  # fmt: skip


def test_an_invoice_makes_it_final_as_a_version_of_the_same_money(closed: Engine) -> None:
    with closed.begin() as connection:
        delivery = bill(connection, LATER)
        machine_hours(connection, delivery, LATER, T0)
    close_due(closed, LATER)
    with closed.begin() as connection:
        make_final(connection, delivery, LATER + HOUR)
    close_due(closed, LATER + HOUR)
    with closed.connect() as connection:
        assert [(v.state, v.capacity_cost) for v in versions_of(connection, T0)][1:] == [
            ("trued_up", Decimal("0.13")), ("final", Decimal("0.13")),
        ]  # fmt: skip
        (row,) = unit_cost_rows(connection, ("deployment",), WINDOW, "allocation")
        assert row["meta"]["state"] == "final"


def test_a_group_is_as_sure_as_the_least_sure_of_its_windows(closed: Engine) -> None:
    with closed.begin() as connection:
        machine_hours(connection, bill(connection, LATER, is_final=True), LATER, T0)
        declare_service(connection, NodeService(D, "http://engine", "node9", "A10G", 1, T0 + HOUR), "test")
    close_due(closed, LATER + HOUR)
    with closed.connect() as connection:
        states = [
            unit_cost_rows(connection, ("deployment",), window, "allocation")[0]["meta"]["state"]
            for window in (WINDOW, Window(T0, T0 + 2 * HOUR))
        ]
    assert states == ["final", "provisional"]


def test_restatements_are_versions_and_the_newest_holds(closed: Engine) -> None:
    for n, cost in enumerate(("0.52", "0.60", "0.40")):
        with closed.begin() as connection:
            machine_hours(connection, bill(connection, LATER + n * HOUR), LATER + n * HOUR, T0, effective=cost)
        close_due(closed, LATER + n * HOUR)
    with closed.connect() as connection:
        assert [v.capacity_cost for v in versions_of(connection, T0)] == [Decimal(c) for c in ("0.2515", "0.13", "0.15", "0.1")]
        early = ledger_rows(connection, (), WINDOW, as_of=LATER + HOUR)
        assert early[0]["cost"] == Decimal("0.60")


def test_a_withdrawn_bill_leaves_rates_again(closed: Engine) -> None:
    with closed.begin() as connection:
        machine_hours(connection, bill(connection, LATER), LATER, T0)
    close_due(closed, LATER)
    with closed.begin() as connection:
        bill(connection, LATER + HOUR)  # a delivery that names the machine no more
    close_due(closed, LATER + HOUR)
    with closed.connect() as connection:
        last = versions_of(connection, T0)[-1]
    assert (last.state, last.capacity_cost, last.charged_cost) == ("provisional", Decimal("0.2515"), None)


def test_an_hour_is_shared_over_deployments_and_the_rest_is_unassigned_exactly(closed: Engine) -> None:
    other = Deployment("lab", "prod", "big")
    with closed.begin() as connection:
        late = NodeService(other, "http://big", "node1", "A10G", 2, T0 + timedelta(minutes=20), T0 + HOUR)
        declare_service(connection, late, "test")
        delivery = bill(connection, LATER)
        rows = [node_charge(delivery, T0, "10.0000000000001", gpus=4), node_charge(delivery, T0 + HOUR, "7", gpus=4)]
        add_node_charges(connection, delivery, rows, LATER)
    close_due(closed, LATER)
    with closed.connect() as connection:
        (found,) = node_money(connection)
        (ledger,) = charged_ledger(connection, Window(T0, T0 + 2 * HOUR))
        stands = standing(connection, Window(T0, T0 + 2 * HOUR))
    assert found.effective == Decimal("17.0000000000001") == found.assigned + found.unassigned + found.rounding
    assert found.rounding == Decimal("1e-13")
    assert found.assigned == ledger.charged == ledger.capacity == sum(ledger.lines.values())
    assert dict(found.by_node) == {("lab", "node1"): found.unassigned}
    assert sorted(found.by_deployment) == [other, D]
    assert (stands.states, stands.unpriced, stands.marked) == ({"trued_up": 7}, 0, 0)


def test_a_service_that_joins_an_hour_late_shares_it_from_its_first_quarter_on(closed: Engine) -> None:
    """Who held the machine at 12:50 changes what 12:00 costs."""
    with closed.begin() as connection:
        machine_hours(connection, bill(connection, LATER), LATER, T0, gpus=None)
    close_due(closed, LATER)
    with closed.begin() as connection:
        service = NodeService(
            Deployment("lab", "prod", "big"), "http://big", "node1", "A10G", 1, T0 + 3 * QUARTER_HOUR, T0 + HOUR
        )
        declare_service(connection, service, "test")
    close_due(closed, LATER)
    with closed.connect() as connection:
        assert [row["cost"] for row in ledger_rows(connection, ("quarter_hour",), WINDOW, filters={"model_id": "tiny"})] == [
            Decimal("0.104")
        ] * 4
        assert ledger_rows(connection, (), WINDOW)[0]["cost"] == Decimal("0.52")


def test_two_currencies_leave_the_window_without_a_price_and_say_so(closed: Engine) -> None:
    with closed.begin() as connection:
        delivery = bill(connection, LATER)
        rows = [node_charge(delivery, T0, "1"), node_charge(delivery, T0, "7", currency="CNY", resource_id="x")]
        add_node_charges(connection, delivery, rows, LATER)
    close_due(closed, LATER)
    with closed.connect() as connection:
        (last,) = [v for v in versions_of(connection, T0) if v.version == 2]
        reason = ledger_show(connection, WINDOW)["unpriced"][0]["reason"]
    assert last.capacity_cost is None
    assert reason == "machines of this quarter hour are billed in CNY and USD: two currencies are never added"


@pytest.mark.parametrize(
    "scope", ["tenant:acme", "tenant:acme/search", "deployment:lab/prod/tiny", "platform", "tenant:acme/search/x"]
)
@pytest.mark.parametrize("basis", ["allocation", "usage"])
def test_a_bill_moves_what_is_shown_and_never_what_a_cap_is_compared_with(closed: Engine, scope: str, basis: str) -> None:
    with closed.begin() as connection:
        use(connection, T0 + timedelta(minutes=1), project="x")
    close_due(closed, LATER)
    plan = money("100", "USD")
    budget = Budget(parse_scope(scope), "month", "UTC", plan, basis, plan, "ann")  # type: ignore[arg-type]
    ask = SpendAsk(budget.scope, budget.window(LATER), budget.cost_basis)
    with closed.begin() as connection:
        before = read_spend(connection, budget, LATER).spend
        machine_hours(connection, bill(connection, LATER), LATER, T0, effective="55.5")
    assert before is not None
    assert before.amount > 0
    assert close_due(closed, LATER).reclosed == 4
    with closed.begin() as connection:
        assert read_spend(connection, budget, LATER).spend == before
        (shown,) = spend_many(connection, [ask], LATER)
    assert shown.trueup is not None
    assert shown.amount == before + shown.trueup
    assert shown.trueup.amount > 0


def test_open_work_is_estimated_by_rates_also_after_a_bill(closed: Engine) -> None:
    """The unit rates of a trued-up quarter hour are those of its estimate."""
    with closed.connect() as connection:
        before = ledger_windows(connection, Window(T0, T0 + QUARTER_HOUR))[0]["detail"]["running"]
    with closed.begin() as connection:
        machine_hours(connection, bill(connection, LATER), LATER, T0, effective="55.5")
    close_due(closed, LATER)
    with closed.connect() as connection:
        assert ledger_windows(connection, Window(T0, T0 + QUARTER_HOUR))[0]["detail"]["running"] == before


def test_a_bill_prices_what_no_rate_could(db: Engine) -> None:
    """Then it is the first price there is: nothing was trued up, and caps see it."""
    with db.begin() as connection:
        declare_service(connection, NodeService(D, "http://engine", "node1", "A10G", 1, T0, T0 + HOUR), "test")
        use(connection, T0)
        machine_hours(connection, bill(connection, T0), T0, T0)
    assert close_due(db, LATER).unpriced == 0
    with db.connect() as connection:
        (version,) = versions_of(connection, T0)
        (spent,) = spend_many(connection, [SpendAsk(parse_scope("platform"), WINDOW, "allocation")], LATER)
    assert (version.state, version.estimate_cost) == ("trued_up", None)
    assert spent.decision == spent.amount == money("0.52", "USD")


@pytest.mark.parametrize("arrives", ["a bill", "as much usage"])
def test_usage_trips_a_cap_and_a_bill_does_not(closed: Engine, arrives: str) -> None:
    with closed.begin() as connection:
        set_budget(connection, "deployment:lab/prod/tiny", "month", Decimal(10), "USD", "UTC", "ann", LATER, cap=Decimal(10))
        if arrives == "a bill":
            machine_hours(connection, bill(connection, LATER), LATER, T0, effective="55.5")
        else:
            declare_service(connection, NodeService(D, "http://e2", "node2", "A10G", 60, T0, T0 + HOUR), "test")
        use(connection, LATER - timedelta(minutes=1))
    close_due(closed, LATER)
    report = watch(closed, LATER, BreakerPolicy())
    assert (report.scopes, report.failed) == (1, {})
    assert [breaker.phase for breaker in report.changed] == ([] if arrives == "a bill" else ["open"])


def test_a_kept_budget_says_what_a_bill_added_and_a_quiet_round_writes_nothing(closed: Engine) -> None:
    with closed.begin() as connection:
        set_budget(connection, "deployment:lab/prod/tiny", "month", Decimal(10), "USD", "UTC", "ann", LATER, cap=Decimal(10))
        machine_hours(connection, bill(connection, LATER), LATER, T0, effective="55.5")
    close_due(closed, LATER)
    assert keep_standings(closed, LATER, 5) == 1
    assert keep_standings(closed, LATER, 5) == 0
    with closed.connect() as connection:
        (standing_now,) = kept_standings(connection, list_budgets(connection), LATER).values()
    row = budget_row(standing_now)
    assert (row["spend"]["amount"], row["spend"]["trueup"]) == (Decimal("55.5"), Decimal("54.494"))
    assert standing_now.decision == money("1.006", "USD")
    assert row["cap_exhausted_at"] != row["exhausted_at"]
