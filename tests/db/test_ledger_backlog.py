"""Closing many quarter hours: in batches as one by one, without holes, and no window's trouble is another's."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from money_rows import T0, D, a10g, engine_runs, service, use
from sqlalchemy import Connection, Engine, event, text

from control.ledger_close import BATCH, CloseReport, CloseSettings, close_all, close_due
from core.usage import Deployment
from core.windows import QUARTER_HOUR, Window
from models.ledger_inputs import read_batch, read_inputs, take_dirty
from models.ledger_repo import ledger_rows, ledger_windows
from models.rates_repo import add_rates, declare_service, read_rates, read_services

pytestmark = pytest.mark.db

DAYS_LATER = T0 + timedelta(hours=30)
TWO_DAYS = Window(T0 - timedelta(days=1), T0 + timedelta(days=2))
TOO_MANY = 2**63 - 1


@pytest.fixture
def priced(db: Engine) -> Engine:
    """One A10G at 1.006 USD/h in service since 12:00."""
    with db.begin() as connection:
        add_rates(connection, [a10g()], T0)
        declare_service(connection, service(), "test")
    return db


def busy_day(connection: Connection) -> list[Window]:
    """Four windows with work of their own, then silent ones that lean on the 24 h before, one without any row."""
    for n in range(4):
        use(connection, T0 + n * QUARTER_HOUR, input_uncached=1_000 * (n + 1))
        use(connection, T0 + n * QUARTER_HOUR + timedelta(minutes=7), team="ads", status="aborted", output=n)
        engine_runs(
            connection, at=T0 + n * QUARTER_HOUR, prompt_tokens=100, prompt_tokens_computed=90, generation_tokens=10 + n,
            prefill_us=1_000_000, decode_us=2_000_000,
        )  # fmt: skip
    engine_runs(connection, at=T0 + 4 * QUARTER_HOUR, prompt_tokens=1, generation_tokens=1)
    use(connection, T0 + 6 * QUARTER_HOUR)
    return [Window(T0 + n * QUARTER_HOUR, T0 + (n + 1) * QUARTER_HOUR) for n in (0, 1, 2, 3, 4, 6)]


def test_a_batch_reads_what_each_window_reads_alone(priced: Engine) -> None:
    with priced.begin() as connection:
        windows = busy_day(connection)
        services, rates = read_services(connection, TWO_DAYS), read_rates(connection, TWO_DAYS)
        batch = read_batch(connection, D, windows, services, rates)
        alone = [read_inputs(connection, D, window, services, rates) for window in windows]
    assert [inputs.digest() for inputs in batch] == [inputs.digest() for inputs in alone]
    assert [len(inputs.periods) for inputs in batch] == [1, 1, 1, 1, 2, 2]
    assert batch[4].periods[1].generated_tokens == 15 * (10 + 11 + 12 + 13 + 1)


def test_rows_between_the_windows_of_a_batch_are_not_theirs(priced: Engine) -> None:
    with priced.begin() as connection:
        windows = busy_day(connection)
        one = read_batch(connection, D, windows, (), ())
        use(connection, T0 + 5 * QUARTER_HOUR, team="between")
        other = read_batch(connection, D, windows, (), ())
    assert [inputs.usage for inputs in one] == [inputs.usage for inputs in other]


def test_a_backlog_closes_completely_and_says_how_far_it_is(priced: Engine) -> None:
    seen: list[tuple[int, int]] = []
    report = close_all(priced, DAYS_LATER, progress=lambda done, due: seen.append((done, due)))
    windows = 4 * 30 - 1
    assert (report.closed, report.failures, report.more) == (windows, [], False)
    assert seen == [(BATCH, windows), (windows, windows)]


def test_a_day_takes_as_many_statements_as_a_window(priced: Engine) -> None:
    with priced.begin() as connection:
        busy_day(connection)
    statements: list[str] = []
    event.listen(priced, "before_cursor_execute", lambda conn, cursor, statement, *rest: statements.append(statement))
    close_due(priced, T0 + timedelta(minutes=31))
    one_window = len(statements)
    assert close_due(priced, T0 + timedelta(hours=24)).closed == 94
    assert len(statements) - one_window == one_window + 1, "one more: silent windows read the 24 h before them"


def test_the_oldest_come_first_so_that_what_is_closed_has_no_hole(priced: Engine) -> None:
    with priced.begin() as connection:
        busy_day(connection)
    report = close_due(priced, DAYS_LATER, CloseSettings(limit=5))
    with priced.connect() as connection:
        starts = [row["window_start"] for row in ledger_windows(connection, TWO_DAYS)]
    assert report.more
    assert starts == [T0 + n * QUARTER_HOUR for n in range(5)]


def test_windows_far_apart_are_closed_again_in_one_call(priced: Engine) -> None:
    close_all(priced, DAYS_LATER)
    with priced.begin() as connection:
        for hours in (0, 5, 11, 28):
            use(connection, T0 + timedelta(hours=hours))
    assert close_due(priced, DAYS_LATER).reclosed == 4


def test_day_sums_follow_many_windows_closed_again_at_once(priced: Engine) -> None:
    with priced.begin() as connection:
        busy_day(connection)
    close_all(priced, DAYS_LATER)
    with priced.begin() as connection:
        for n in range(60):
            use(connection, T0 + n * QUARTER_HOUR + timedelta(minutes=3), team="late")
    assert close_due(priced, DAYS_LATER).reclosed == 60
    with priced.connect() as connection:
        found = connection.execute(
            text("SELECT team, kind, sum(cost) AS cost FROM ledger_day GROUP BY 1, 2 HAVING sum(cost) <> 0")
        )
        days = {(row.team, row.kind): row.cost for row in found}
        lines = {(r["team"], r["kind"]): r["cost"] for r in ledger_rows(connection, ("team", "kind"), TWO_DAYS) if r["cost"]}
    assert days == lines


def test_a_window_that_cannot_be_closed_stays_marked_and_stops_no_other(priced: Engine) -> None:
    with priced.begin() as connection:
        for n in range(7):
            use(connection, T0 + n * QUARTER_HOUR)
        for team in ("a", "b"):
            use(connection, T0 + 2 * QUARTER_HOUR, team=team, input_uncached=TOO_MANY)
    report = close_due(priced, T0 + timedelta(hours=2))
    assert report.closed == 6
    (failure,) = report.failures
    assert failure.startswith(f"{D} {(T0 + 2 * QUARTER_HOUR).isoformat()}: ")
    assert "bigint" in failure or "out of range" in failure
    assert marked(priced) == [T0 + 2 * QUARTER_HOUR]


def test_a_call_with_failures_alone_does_not_ask_to_be_called_again_at_once(priced: Engine) -> None:
    with priced.begin() as connection:
        for team in ("a", "b"):
            use(connection, T0, team=team, input_uncached=TOO_MANY)
    report = close_due(priced, DAYS_LATER, CloseSettings(limit=1))
    assert (len(report.failures), report.closed, report.more) == (1, 0, False)


def test_one_deployment_in_trouble_stops_no_other(priced: Engine) -> None:
    with priced.begin() as connection:
        for team in ("a", "b"):
            use(connection, T0, model_id="other", team=team, input_uncached=TOO_MANY)
        mark(connection, Deployment(D.cluster, D.namespace, "other"))
    report = close_due(priced, T0 + timedelta(minutes=31))
    assert (report.closed, len(report.failures)) == (1, 1)


def test_interrupted_between_two_transactions_the_next_run_goes_on(priced: Engine) -> None:
    def ctrl_c(done: int, due: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        close_all(priced, DAYS_LATER, progress=ctrl_c)
    report = close_all(priced, DAYS_LATER)
    assert (report.closed, report.reclosed) == (4 * 30 - 1 - BATCH, 0)


def test_a_stream_that_falls_behind_during_a_backlog_holds_the_rest(priced: Engine) -> None:
    def falls_behind(done: int, due: int) -> None:
        with priced.begin() as connection:
            connection.execute(text("INSERT INTO stream_state (topic, catching_up, updated_at) VALUES ('usage', true, now())"))

    report = close_all(priced, DAYS_LATER, progress=falls_behind)
    assert (report.closed, report.held, report.more) == (BATCH, "the stream is catching up on usage", False)


def test_what_lands_after_the_marks_were_taken_marks_its_window_again(priced: Engine) -> None:
    with priced.begin() as closing:
        take_dirty(closing, D, [T0])
        with priced.begin() as loader:
            use(loader)
    assert marked(priced) == [T0]


def test_progress_over_two_calls_is_one_report() -> None:
    whole = CloseReport(closed=1, unpriced=1, more=True, failures=["a"])
    whole.add(CloseReport(reclosed=2, unchanged=3, failures=["b"]))
    assert whole == CloseReport(1, 2, 3, 1, more=False, held="", failures=["a", "b"])


def mark(connection: Connection, deployment: Deployment) -> None:
    place = {"cluster": deployment.cluster, "namespace": deployment.namespace, "model_id": deployment.model_id, "at": T0}
    connection.execute(text("INSERT INTO dirty_window VALUES (:cluster, :namespace, :model_id, :at, :at)"), place)


def marked(engine: Engine) -> list[Any]:
    with engine.connect() as connection:
        return list(connection.execute(text("SELECT window_start FROM dirty_window ORDER BY 1")).scalars())
