"""Months are closed and stated: a statement sent never changes, and what changes later is posted once in the open month."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from charge_rows import HOUR, bill, charge_day, machine_hours
from click.testing import CliRunner
from money_rows import D, a10g, use
from sqlalchemy import Connection, Engine, text

from cli.main import cli
from control.ledger_close import close_due
from control.shared_costs import add_shared_rule, end_shared_rule, preview
from control.statement import Statement, close_period, month_window, period_lines_now, statement
from core.capacity import NodeService
from core.errors import BadInput, Conflict, NotFound, Refused
from core.shared_cost import Selector, SharedRule
from core.windows import Window
from models.audit_repo import list_audit
from models.ledger_repo import ledger_rows
from models.period_repo import closed_periods, kept_lines
from models.rates_repo import add_rates, declare_service

pytestmark = pytest.mark.db
JUNE, JULY, AUGUST = date(2026, 6, 1), date(2026, 7, 1), date(2026, 8, 1)
LAST_OF_JUNE = datetime(2026, 6, 30, 22, tzinfo=UTC)
IN_JULY = datetime(2026, 7, 15, 10, tzinfo=UTC)
AFTER_JUNE, AFTER_JULY = datetime(2026, 7, 4, tzinfo=UTC), datetime(2026, 8, 4, tzinfo=UTC)
STORAGE = SharedRule("storage", 10, Selector(service="AmazonS3"), "weight", "tenant", JUNE, "platform team")


@pytest.fixture
def fleet(db: Engine) -> Engine:
    """One GPU for two hours of June and two of July, with work of two teams; all closed by rates."""
    with db.begin() as connection:
        add_rates(connection, [a10g(since=LAST_OF_JUNE - timedelta(days=30))], LAST_OF_JUNE)
        for start in (LAST_OF_JUNE, IN_JULY):
            declare_service(connection, NodeService(D, "http://engine", "node1", "A10G", 1, start, start + 2 * HOUR), "test")
            use(connection, start)
            use(connection, start + HOUR, team="ads")
    report = close_due(db, AFTER_JUNE - timedelta(hours=1))
    assert (report.closed, report.failures) == (8, [])
    return db


def close_month(db: Engine, month: date, now: datetime, **options: Any) -> None:
    with db.begin() as connection:
        close_period(connection, month, "UTC", by="ann", reason="invoice issued", now=now, **options)


def stated(db: Engine, month: date, **options: Any) -> Statement:
    with db.connect() as connection:
        return statement(connection, month, "UTC", AFTER_JULY + timedelta(days=9), **options)


def amounts(found: Statement, section: str) -> dict[tuple[str, str], Decimal]:
    sums: dict[tuple[str, str], Decimal] = {}
    for row in found.rows:
        if row.section == section:
            sums[row.bearer, row.kind] = sums.get((row.bearer, row.kind), Decimal(0)) + row.amount
    return sums


def newest(connection: Connection) -> Decimal:
    """Everything that is anybody's: newest ledger lines, and the months' money that lies in no quarter hour."""
    lines = ledger_rows(connection, (), Window(LAST_OF_JUNE - timedelta(days=60), AFTER_JULY))
    rest = [
        line.amount
        for month in (JUNE, JULY)
        for line in period_lines_now(connection, month, month_window(connection, month, "UTC"), "UTC")[0]
        if line.kind in ("shared", "unassigned")
    ]
    return sum(rest, lines[0]["cost"])


def test_an_open_month_is_stated_as_it_is_now(fleet: Engine) -> None:
    found = stated(fleet, JUNE)
    assert found.closed_at is None
    assert found.totals == {"USD": Decimal("2.012")}
    assert {bearer for bearer, _ in amounts(found, "own")} == {"acme/search", "acme/ads", "platform"}
    assert (found.states, found.unpriced, found.waiting) == ({"provisional": 8}, 0, 0)


def test_a_months_correction_is_posted_in_the_first_open_month_and_the_closed_statement_stays(fleet: Engine) -> None:
    """B4, C4: July's invoice restates June; chargeback already sent is not altered, the difference is posted."""
    close_month(fleet, JUNE, AFTER_JUNE)
    sent = stated(fleet, JUNE)
    with fleet.begin() as connection:
        later = AFTER_JUNE + timedelta(days=1)
        machine_hours(connection, bill(connection, later, period=JUNE, is_final=True), later, LAST_OF_JUNE, 2, "1.5")
    close_due(fleet, AFTER_JUNE + timedelta(days=1))
    assert stated(fleet, JUNE) == sent
    july = stated(fleet, JULY)
    corrections = [row for row in july.rows if row.section == "correction"]
    assert {row.month for row in corrections} == {JUNE}
    assert {row.keys["deployment"] for row in corrections} == {"lab/prod/tiny"}
    assert {row.why for row in corrections} == {"price: aws cur 2026-06 v1 (effective)"}
    assert sum(row.amount for row in corrections) == Decimal(3) - Decimal("2.012")
    with fleet.connect() as connection:
        assert sent.totals["USD"] + july.totals["USD"] == newest(connection)


def test_late_usage_of_a_closed_month_moves_money_between_tenants_in_the_open_one(fleet: Engine) -> None:
    close_month(fleet, JUNE, AFTER_JUNE)
    with fleet.begin() as connection:
        use(connection, LAST_OF_JUNE + timedelta(minutes=1), team="late")
    close_due(fleet, AFTER_JUNE + HOUR)
    july = stated(fleet, JULY)
    found = amounts(july, "correction")
    assert found["acme/late", "served"] > 0
    assert sum(found.values()) == 0
    assert {row.why for row in july.rows if row.section == "correction"} == {"late usage"}


def test_each_change_stands_on_one_statement_once(fleet: Engine) -> None:
    """A bill, a second delivery of it, late usage and a shared cost come between closes; the statements add up to the newest."""
    with fleet.begin() as connection:
        add_shared_rule(connection, STORAGE, "ann", AFTER_JUNE - HOUR)
        charge_day(connection, bill(connection, AFTER_JUNE - HOUR, period=JUNE), date(2026, 6, 20), "7.77")
    close_month(fleet, JUNE, AFTER_JUNE)
    june = stated(fleet, JUNE)
    for n, (cost, hours) in enumerate((("1.5", 2), ("0.9", 3))):
        at = AFTER_JUNE + timedelta(days=n + 1)
        with fleet.begin() as connection:
            delivery = bill(connection, at, period=JUNE)
            machine_hours(connection, delivery, at, LAST_OF_JUNE - (n * HOUR), hours, cost)
            charge_day(connection, delivery, date(2026, 6, 20), "9.00")
            use(connection, LAST_OF_JUNE + timedelta(minutes=2 + n), team="late")
        close_due(fleet, at)
    close_due(fleet, AFTER_JULY - HOUR)
    on_the_way = stated(fleet, JULY)
    close_month(fleet, JULY, AFTER_JULY)
    july = stated(fleet, JULY)
    assert july.rows == on_the_way.rows
    with fleet.begin() as connection:
        at = AFTER_JULY + HOUR
        machine_hours(connection, bill(connection, at, period=JULY), at, IN_JULY, 1, "4")
    close_due(fleet, AFTER_JULY + HOUR)
    august = stated(fleet, AUGUST)
    assert {row.month for row in august.rows} == {JULY}
    assert (stated(fleet, JUNE), stated(fleet, JULY)) == (june, july)
    with fleet.connect() as connection:
        assert sum(found.totals["USD"] for found in (june, july, august)) == newest(connection)
    assert amounts(june, "own")["acme/ads", "shared"] > 0
    assert sum(v for (_, kind), v in amounts(july, "correction").items() if kind == "shared") == Decimal("1.23")
    assert amounts(july, "correction")["platform", "unassigned"] == Decimal("0.9")


@pytest.mark.parametrize("basis", ["allocation", "usage"])
@pytest.mark.parametrize("idle", ["apart", "spread"])
def test_every_basis_and_idle_policy_adds_up_over_the_statements(fleet: Engine, basis: str, idle: str) -> None:
    close_month(fleet, JUNE, AFTER_JUNE)
    june = stated(fleet, JUNE, basis=basis, idle=idle)
    with fleet.begin() as connection:
        machine_hours(connection, bill(connection, AFTER_JUNE + HOUR, period=JUNE), AFTER_JUNE + HOUR, LAST_OF_JUNE, 2, "1.5")
    close_due(fleet, AFTER_JUNE + HOUR)
    july = stated(fleet, JULY, basis=basis, idle=idle)
    kinds = ("served", "wasted", "unattributed") if basis == "usage" else ("served", "wasted", "unattributed", "idle", "starting")
    with fleet.connect() as connection:
        lines = ledger_rows(connection, ("kind",), Window(LAST_OF_JUNE, AFTER_JULY))
    assert june.totals["USD"] + july.totals["USD"] == sum(row["cost"] for row in lines if row["kind"] in kinds)
    left = sum(row.amount for row in june.rows if row.kind in ("idle", "starting"))
    idle_alone = Decimal("2.012") / 8 * 6  # quarter hours in which nobody worked: there is nobody to spread them over
    assert left == 0 if basis == "usage" else left == idle_alone if idle == "spread" else left > idle_alone


def test_billed_gpus_nobody_held_are_a_row_of_their_own(fleet: Engine) -> None:
    with fleet.begin() as connection:
        delivery = bill(connection, AFTER_JUNE - HOUR, period=JUNE)
        machine_hours(connection, delivery, AFTER_JUNE - HOUR, LAST_OF_JUNE - HOUR, 3, "1.5")
    close_due(fleet, AFTER_JUNE - HOUR)
    for idle in ("apart", "spread"):
        found = stated(fleet, JUNE, idle=idle)
        assert amounts(found, "own")["platform", "unassigned"] == Decimal("1.5")
        assert found.totals == {"USD": Decimal("4.5")}


def test_as_of_reads_a_statement_as_it_was_known_then(fleet: Engine) -> None:
    before = stated(fleet, JUNE)
    with fleet.begin() as connection:
        machine_hours(connection, bill(connection, AFTER_JUNE, period=JUNE), AFTER_JUNE, LAST_OF_JUNE, 2, "1.5")
    close_due(fleet, AFTER_JUNE)
    assert stated(fleet, JUNE, as_of=AFTER_JUNE - HOUR).rows == before.rows
    assert stated(fleet, JUNE).totals == {"USD": Decimal(3)}


def test_a_month_is_not_closed_over_quarter_hours_that_wait_or_have_no_price(fleet: Engine) -> None:
    with fleet.begin() as connection:
        use(connection, LAST_OF_JUNE + timedelta(minutes=3), team="late")
    with pytest.raises(Refused, match="1 quarter hours wait to be closed") as error:
        close_month(fleet, JUNE, AFTER_JUNE)
    assert error.value.hint == "to close it anyway, accept: open"
    close_due(fleet, AFTER_JUNE)
    with fleet.begin() as connection:
        no_price = NodeService(D, "http://engine2", "node2", "H100", 1, LAST_OF_JUNE, LAST_OF_JUNE + HOUR)
        declare_service(connection, no_price, "test")
    close_due(fleet, AFTER_JUNE)
    with pytest.raises(Refused, match=r"4 quarter hours have no price .no list rate gpu_hour for H100"):
        close_month(fleet, JUNE, AFTER_JUNE)
    with pytest.raises(BadInput):
        close_month(fleet, JUNE, AFTER_JUNE, accept=["anything"])
    close_month(fleet, JUNE, AFTER_JUNE, accept=["unpriced"])
    with fleet.connect() as connection:
        (closed,) = closed_periods(connection)
    assert (closed.totals["accepted"], closed.totals["unpriced"]) == (["unpriced"], 4)


def test_a_close_is_audited_and_happens_once_in_order(fleet: Engine) -> None:
    with pytest.raises(Refused, match="close 2026-06 first"):
        close_month(fleet, JULY, AFTER_JULY)
    with pytest.raises(Refused, match="has not ended"):
        close_month(fleet, JUNE, LAST_OF_JUNE)
    close_month(fleet, JUNE, AFTER_JUNE)
    with pytest.raises(Refused, match="2026-06 is closed"):
        close_month(fleet, JUNE, AFTER_JUNE)
    with fleet.connect() as connection:
        (record,) = [r for r in list_audit(connection) if r.action == "ledger.close_period"]
    assert (record.actor, record.subject, record.detail["reason"]) == ("ann", "period:2026-06", "invoice issued")


def test_a_dry_run_says_what_stands_and_changes_nothing(fleet: Engine) -> None:
    with fleet.begin() as connection:
        use(connection, LAST_OF_JUNE + timedelta(minutes=3))
        check = close_period(connection, JUNE, "UTC", by="ann", reason="try", now=AFTER_JUNE, dry_run=True)
    assert (check.refusal, check.accept) == ("1 quarter hours wait to be closed (tokenfuse ledger close)", ("open",))
    with fleet.connect() as connection:
        assert (closed_periods(connection), kept_lines(connection, JUNE).version) == ([], 0)


def test_a_version_written_with_an_earlier_clock_still_comes_after_the_close(fleet: Engine) -> None:
    """A close of quarter hours that began before the month's close and ends after it must not change what was sent."""
    close_month(fleet, JUNE, AFTER_JUNE)
    sent = stated(fleet, JUNE)
    with fleet.begin() as connection:
        use(connection, LAST_OF_JUNE + timedelta(minutes=1), team="late")
    close_due(fleet, AFTER_JUNE - timedelta(minutes=5))
    assert stated(fleet, JUNE) == sent
    assert amounts(stated(fleet, JULY), "correction")["acme/late", "served"] > 0


def test_what_a_faster_clock_wrote_before_the_close_stands_on_the_statement(fleet: Engine) -> None:
    with fleet.begin() as connection:
        machine_hours(connection, bill(connection, AFTER_JUNE, period=JUNE), AFTER_JUNE, LAST_OF_JUNE, 2, "1.5")
    close_due(fleet, AFTER_JUNE + timedelta(minutes=9))
    close_month(fleet, JUNE, AFTER_JUNE)
    with fleet.connect() as connection:
        assert closed_periods(connection)[0].totals["money"] == {"USD": "3"}
    assert stated(fleet, JUNE).totals == {"USD": Decimal(3)}
    assert stated(fleet, JULY).rows == []


def test_a_month_follows_the_reporting_zone(fleet: Engine) -> None:
    """22:00 to 24:00 UTC of 30 June is July in Shanghai, on a machine hour too."""
    with fleet.begin() as connection:
        machine_hours(connection, bill(connection, AFTER_JUNE, period=JUNE), AFTER_JUNE, LAST_OF_JUNE - HOUR, 3, "1.5")
    close_due(fleet, AFTER_JUNE)
    with fleet.connect() as connection:
        june, july = (statement(connection, month, "Asia/Shanghai", AFTER_JULY) for month in (JUNE, JULY))
    assert june.totals == {}
    assert amounts(july, "own")["platform", "unassigned"] == Decimal("1.5")


def test_shared_rules_are_previewed_added_ended_and_never_edited(fleet: Engine) -> None:
    with fleet.begin() as connection:
        delivery = bill(connection, AFTER_JUNE, period=JUNE)
        machine_hours(connection, delivery, AFTER_JUNE, LAST_OF_JUNE, 2, "1.5")
        charge_day(connection, delivery, date(2026, 6, 3), "6", tags={"app": "gateway", "x": "y"})
        charge_day(connection, delivery, None, "2", bucket="tax", service="")
        charge_day(connection, delivery, date(2026, 6, 30), "3", bucket="gpu", resource_id="i-1")  # joined: its machine's own
        charge_day(connection, delivery, date(2026, 7, 1), "99")
    window = Window(LAST_OF_JUNE - timedelta(days=29), LAST_OF_JUNE + 2 * HOUR)
    tagged = SharedRule("gateway", 1, Selector(tag=("app", "gateway")), "even", "tenant", JUNE, "ops")
    with fleet.begin() as connection:
        shown = preview(connection, JUNE, window, adding=tagged)
        assert [(line.kind, line.amount) for line in shown.now] == [("not_shared", 6), ("not_shared", 2)]
        assert [(line.kind, line.team, line.amount) for line in shown.then] == [
            ("shared", "ads", 3), ("shared", "search", 3), ("not_shared", "", 2),
        ]  # fmt: skip
        add_shared_rule(connection, tagged, "ann", AFTER_JUNE)
        assert preview(connection, JUNE, window).now == shown.then
        with pytest.raises(Conflict):
            add_shared_rule(connection, tagged, "ann", AFTER_JUNE)
        assert end_shared_rule(connection, "gateway", date(2026, 6, 3), "ann", "moved", AFTER_JUNE).valid_to == date(2026, 6, 3)
        assert preview(connection, JUNE, window).now == shown.now
        with pytest.raises(NotFound):
            end_shared_rule(connection, "none", JULY, "ann", "moved", AFTER_JUNE)
        assert [r.action for r in list_audit(connection) if r.subject == "shared:gateway"] == ["shared.end", "shared.add"]


def test_the_commands_say_it_all(fleet: Engine, db_url: str, tmp_path: Any) -> None:
    def run(*arguments: str, code: int = 0) -> str:
        result = CliRunner().invoke(cli, [*arguments, "--db", db_url, "--data-dir", str(tmp_path)], standalone_mode=False)
        assert result.exception is None or code, result.output
        assert (result.return_value or 0) == code, result.output
        return result.output

    with fleet.begin() as connection:
        charge_day(connection, bill(connection, AFTER_JUNE, period=JUNE), date(2026, 6, 3), "6")
    add = (
        "shared",
        "add",
        "storage",
        "--service",
        "AmazonS3",
        "--method",
        "weight",
        "--over",
        "tenant",
        "--from",
        "2026-06-01",
        "--owner",
        "ops",
    )
    assert "acme/ads" in run(*add, "--dry-run", "2026-06")
    run(*add)
    assert "service AmazonS3" in run("shared", "list")
    assert "acme/search" in run("shared", "preview", "2026-06")
    assert "Nothing is in the way" in run("ledger", "close-period", "2026-06", "--reason", "sent", "--dry-run")
    assert "Closed at" in run("ledger", "close-period", "2026-06", "--reason", "sent", "--by", "ann")
    assert "sent" in run("ledger", "periods")
    found = json.loads(run("ledger", "statement", "2026-06", "--by", "team", "--json"))
    assert (found["month"], found["totals"][-1]) == ("2026-06", {"section": "all", "currency": "USD", "amount": "8.012"})
    assert "Idle and starting" not in run("ledger", "statement", "2026-06")
    assert "Own cost" in run("ledger", "statement", "2026-06", "--idle", "spread")
    assert "open: it may change" in run("ledger", "statement", "2026-09")
    run("shared", "end", "storage", "--on", "2026-07-01", "--reason", "moved")


def test_no_statement_row_is_lost_by_a_key(fleet: Engine) -> None:
    whole = stated(fleet, JUNE).totals
    for by in ((), ("org",), ("deployment", "team", "user"), ("day",), ("token_kind", "service_tier")):
        assert stated(fleet, JUNE, by=by).totals == whole
    with pytest.raises(BadInput):
        stated(fleet, JUNE, by=("colour",))
    with fleet.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM period_line")).scalar_one() == 0
