"""Many spends asked for together: each is what it is alone, in the same few statements however many there are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from money_rows import a10g, use
from sqlalchemy import Connection, Engine, event, insert, text

from control.running_cost import SpendAsk, spend, spend_many
from core.capacity import NodeService
from core.scopes import Scope, parse_scope
from core.spend import Spend
from core.unit_cost import CostBasis
from core.usage import Deployment
from core.windows import QUARTER_HOUR, Window, period_window
from models.ledger_sums import TABLES
from models.rates_repo import add_rates, declare_service
from models.tables_money import LedgerHeadRow, LedgerLineRow, LedgerWindowRow

pytestmark = pytest.mark.db

NOW = datetime(2026, 12, 1, 0, 20, tzinfo=UTC)
FIRST = datetime(2026, 11, 30, 22, tzinfo=UTC)
CLOSED_QUARTERS, QUARTERS = 7, 10
"""Closed from 22:00 to 23:45, open from there to the running quarter hour 00:15; midnight lies between."""
MODELS = ("cheap", "dear", "unpriced")
TENANTS = (("acme", ""), ("acme", "red"), ("acme", "blue"), ("bolt", "red"))
SCOPES = (
    "platform", "tenant:acme", "tenant:acme/red", "tenant:bolt/red", "tenant:nobody", "service_tier:P0", "service_tier:P1",
    *(f"deployment:lab/prod/{model}" for model in MODELS),
)  # fmt: skip
WINDOWS = (
    period_window("day", NOW, "UTC"),
    period_window("month", FIRST, "UTC"),
    period_window("week", NOW, "Asia/Kathmandu"),
    Window(NOW - timedelta(minutes=50), NOW),
    Window(FIRST + timedelta(minutes=7), FIRST + timedelta(minutes=92)),
    Window(FIRST, NOW + timedelta(days=1)),
)
BASES: tuple[CostBasis, ...] = ("usage", "allocation")


@dataclass(frozen=True)
class Line:
    """A request's usage in a quarter hour, or a line of a closed one (by ``quarter``)."""

    model: str
    quarter: int
    tenant: tuple[str, str]
    tier: str
    kind: str
    tokens: int

    @property
    def start(self) -> datetime:
        return FIRST + self.quarter * QUARTER_HOUR


LINES = st.lists(
    st.builds(
        Line,
        st.sampled_from(MODELS),
        st.integers(0, QUARTERS - 1),
        st.sampled_from(TENANTS),
        st.sampled_from(("P0", "P1")),
        st.sampled_from(("served", "wasted", "unattributed", "idle")),
        st.integers(0, 10**9),
    ),
    max_size=25,
)
ASKS = st.lists(
    st.builds(SpendAsk, st.sampled_from(SCOPES).map(parse_scope), st.sampled_from(WINDOWS), st.sampled_from(BASES)), max_size=25
)


@pytest.fixture
def fleet(db: Engine) -> Engine:
    """Three deployments in service, two of them with a price."""
    with db.begin() as connection:
        add_rates(connection, [a10g(since=FIRST - timedelta(days=9))], FIRST)
        for model, gpu in zip(MODELS, ("A10G", "A10G", "TPU9"), strict=True):
            place = Deployment("lab", "prod", model)
            declare_service(connection, NodeService(place, f"http://{model}", f"node-{model}", gpu, 1, FIRST), "test")
    return db


@contextmanager
def undone(engine: Engine) -> Iterator[Connection]:
    """A transaction that leaves nothing behind."""
    with engine.connect() as connection:
        yield connection
        connection.rollback()


def write(connection: Connection, lines: Sequence[Line]) -> None:
    """Usage everywhere; closed quarter hours of the priced deployments with one line per line, of the other without a price."""
    for n, line in enumerate(lines):
        org, team = line.tenant
        use(connection, line.start + timedelta(minutes=n % 15), model_id=line.model, org=org, team=team,
            service_tier=line.tier, key_id=str(n), input_uncached=line.tokens, duration_ms=1_000)  # fmt: skip
    closed = [line for line in lines if line.quarter < CLOSED_QUARTERS]
    for model, quarter in sorted({(line.model, line.quarter) for line in closed}):
        close(connection, model, quarter, [line for line in closed if (line.model, line.quarter) == (model, quarter)])
    connection.execute(
        text("""
            INSERT INTO ledger_day SELECT date_trunc('day', window_start, 'UTC'), cluster, namespace, model_id, org, team,
                project, user_id, service_tier, kind, 'USD', sum(cost), sum(allocated)
            FROM ledger_line GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
        """)
    )
    for table, unit, keys in TABLES:
        names = ", ".join(keys)
        connection.execute(
            text(f"""
                INSERT INTO {table} ({unit}, {names}, currency, lines, tokens, requests, cost, allocated)
                SELECT date_trunc('{unit}', window_start, 'UTC') AS at, {names}, 'USD',
                    count(*), sum(tokens), sum(requests), sum(cost), sum(allocated)
                FROM ledger_line GROUP BY at, {names}
            """)
        )


def close(connection: Connection, model: str, quarter: int, lines: Sequence[Line]) -> None:
    key = {
        "cluster": "lab", "namespace": "prod", "model_id": model, "window_start": FIRST + quarter * QUARTER_HOUR, "version": 1
    }  # fmt: skip
    priced = model != "unpriced"
    window = {
        **key, "state": "provisional", "currency": "USD", "capacity_cost": Decimal(1) if priced else None,
        "utilisation_source": "", "weight_source": "", "price_source": "", "closed_at": NOW,
        "gateway_input_tokens": sum(line.tokens for line in lines), "gateway_output_tokens": 0,
        "detail": {"reason": f"no rate in quarter {quarter}"},
    }  # fmt: skip
    connection.execute(insert(LedgerWindowRow), [window])
    connection.execute(insert(LedgerHeadRow), [key])
    if priced:
        connection.execute(insert(LedgerLineRow), [{**key, **_line(line)} for line in lines])


def _line(line: Line) -> dict[str, object]:
    org, team = line.tenant if line.kind in ("served", "wasted") else ("", "")
    tier = line.tier if org else ""
    return {"kind": line.kind, "org": org, "team": team, "service_tier": tier, "cost": cost(line), "allocated": 2 * cost(line)}


def cost(line: Line) -> Decimal:
    return Decimal(line.tokens).scaleb(-6)


def closed_cost(ask: SpendAsk, lines: Sequence[Line]) -> Decimal:
    """By hand: the priced closed lines whose start lies in the window and that the scope covers."""
    kinds = ("served", "wasted", "unattributed") if ask.scope.kind in ("platform", "deployment") else ("served", "wasted")
    mine = [
        line for line in lines
        if line.quarter < CLOSED_QUARTERS and line.model != "unpriced" and ask.window.contains(line.start)
        and covers(ask.scope, line) and (ask.basis == "allocation" or line.kind in kinds)
    ]  # fmt: skip
    return sum((cost(line) * (2 if ask.basis == "allocation" else 1) for line in mine), Decimal(0))


def without_price(ask: SpendAsk, lines: Sequence[Line]) -> int:
    """By hand: the closed quarter hours with tokens of the unpriced deployment, where the scope used it in one of them."""
    there = [line for line in lines if line.model == "unpriced" and line.quarter < CLOSED_QUARTERS]
    tokens = {q: sum(line.tokens for line in there if line.quarter == q) for q in range(CLOSED_QUARTERS)}
    seen = [line for line in there if tokens[line.quarter] and ask.window.contains(line.start)]
    used = any(covers(ask.scope, replace(line, kind="served")) for line in seen)
    return len({line.quarter for line in seen}) if used else 0


def unpriced_quarters(found: Spend) -> int:
    named = re.search(r"(\d+) closed quarter hours of lab/prod/unpriced: no rate in quarter", found.reason)
    return int(named[1]) if named else 0


def covers(scope: Scope, line: Line) -> bool:
    if scope.kind in ("tenant", "service_tier") and line.kind not in ("served", "wasted"):
        return False
    of = {
        "platform": Scope("platform"),
        "deployment": Scope("deployment", ("lab", "prod", line.model)),
        "tenant": Scope("tenant", line.tenant),
        "service_tier": Scope("service_tier", (line.tier,)),
    }
    return scope.covers(of[scope.kind])


def one_by_one(connection: Connection, asks: Sequence[SpendAsk]) -> list[Spend]:
    return [spend(connection, ask.scope, ask.window, ask.basis, NOW, currency=ask.currency) for ask in asks]


@given(lines=LINES, asks=ASKS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_together_they_are_what_each_is_alone_and_the_closed_part_is_the_sum_of_its_lines(
    fleet: Engine, lines: list[Line], asks: list[SpendAsk]
) -> None:
    with undone(fleet) as connection:
        write(connection, lines)
        with connection.begin_nested() as before_rates_freeze:
            together = spend_many(connection, asks, NOW)
            before_rates_freeze.rollback()
        assert together == one_by_one(connection, asks)
        assert together == spend_many(connection, asks, NOW)
        assert [found.closed.amount for found in together] == [closed_cost(ask, lines) for ask in asks]
        assert [unpriced_quarters(found) for found in together] == [without_price(ask, lines) for ask in asks]


def test_two_budgets_of_one_scope_add_up_from_two_of_its_parts(fleet: Engine) -> None:
    day = WINDOWS[-1]
    lines = [Line("cheap", q, tenant, "P1", "served", 1000 + q) for q in range(QUARTERS) for tenant in TENANTS[1:3]]
    scopes = [parse_scope(name) for name in ("tenant:acme", "tenant:acme/red", "tenant:acme/blue")]
    with undone(fleet) as connection:
        write(connection, lines)
        whole, *parts = spend_many(connection, [SpendAsk(scope, day, "usage") for scope in scopes], NOW)
    assert whole.running.amount > 0
    assert whole.closed.amount == sum(part.closed.amount for part in parts)
    assert whole.running.amount == pytest.approx(sum(part.running.amount for part in parts), abs=Decimal("1e-10"))


def test_a_hundred_cost_as_many_statements_as_one_of_each_kind(fleet: Engine) -> None:
    lines = [Line(model, q, TENANTS[q % 4], "P1", "served", 1000) for q in range(QUARTERS) for model in MODELS]
    few = [SpendAsk(parse_scope(name), WINDOWS[1], basis) for name in ("platform", "tenant:acme/red") for basis in BASES]
    many = [SpendAsk(parse_scope(name), window, basis) for name in SCOPES for window in WINDOWS for basis in BASES]
    with undone(fleet) as connection:
        write(connection, lines)
        spend_many(connection, many, NOW)
        assert len(many) == 120
        assert statements(connection, many) == statements(connection, few)
        assert statements(connection, []) == 0


def statements(connection: Connection, asks: Sequence[SpendAsk]) -> int:
    seen: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        seen.append(statement)

    event.listen(connection, "before_cursor_execute", note)
    spend_many(connection, asks, NOW)
    event.remove(connection, "before_cursor_execute", note)
    return len(seen)
