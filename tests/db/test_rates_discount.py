"""``tokenfuse rates discount``: closed windows follow it and its end; the label stays on every number."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from cli_command import Command
from sqlalchemy import Engine, text

from core.capacity import NodeService
from core.money import money
from core.rates import Rate
from core.usage import Deployment
from models.rates_repo import add_rates, declare_service

pytestmark = pytest.mark.db
START, END = datetime(2026, 7, 2, tzinfo=UTC), datetime(2026, 7, 2, 1, tzinfo=UTC)
ADD = (
    "rates",
    "discount",
    "add",
    "--provider",
    "aws",
    "--percent",
    "28",
    "--from",
    "2026-07-02T00:30:00Z",
    "--reason",
    "offer 7",
)


@pytest.fixture
def hour(db: Engine, command: Command) -> None:
    """One GPU at a list price of 4 an hour served for an hour, closed."""
    with db.begin() as connection:
        rate = Rate("gpu_hour", "A100", money("4", "USD"), "list", "list price, bill pending: AWS on-demand p4d", START)
        add_rates(connection, [rate], START)
        declare_service(connection, NodeService(Deployment("c", "n", "m"), "t", "n1", "A100", 1, START, END), "test")
    assert command("ledger", "close")[0] == 0


def newest(db: Engine) -> list[tuple[str, str, bool]]:
    """Capacity cost, price source and whether it was ever closed again, of each quarter hour."""
    query = text(
        "SELECT w.capacity_cost, w.price_source, w.version FROM ledger_window w "
        "JOIN ledger_head h USING (cluster, namespace, model_id, window_start, version) ORDER BY window_start"
    )
    with db.connect() as connection:
        return [(f"{row[0]:.4f}", row[1], row[2] > 1) for row in connection.execute(query)]


def test_windows_follow_a_discount_and_its_end(command: Command, db: Engine, hour: None) -> None:
    assert [row[0] for row in newest(db)] == ["1.0000"] * 4
    code, added, error = command(*ADD)
    assert code == 0, error
    assert [(row["sku"], row["price"]) for row in added["rates"]] == [("A100", "2.88")]
    command("ledger", "close")
    rows = newest(db)
    assert [row[0] for row in rows] == ["1.0000", "1.0000", "0.7200", "0.7200"]
    assert rows[0][1] == "list price, bill pending: AWS on-demand p4d (list)"
    assert rows[2][1].startswith("list × (1 − 28 %), typed by command line (offer 7); list price, bill pending")
    assert "(contracted)" in rows[2][1]
    listed = command("rates", "list")[1]
    assert [row["charge_basis"] for row in listed] == ["list", "contracted"]
    command("rates", "discount", "end", str(added["id"]), "--at", "2026-07-02T00:45:00Z")
    command("ledger", "close")
    assert [row[0] for row in newest(db)] == ["1.0000", "1.0000", "0.7200", "1.0000"]
    command("rates", "discount", "end", str(added["id"]), "--at", "2026-07-01")
    command("ledger", "close")
    rows = newest(db)
    assert [row[0] for row in rows] == ["1.0000"] * 4
    assert command("rates", "discount", "list")[1] == []
    actions = [record["action"] for record in command("audit", "list")[1]]
    assert sorted(action for action in actions if "discount" in action) == [
        "rates.discount.add", "rates.discount.end", "rates.discount.end",
    ]  # fmt: skip


def test_a_dry_run_shows_the_prices_and_keeps_nothing(command: Command, db: Engine, hour: None) -> None:
    _, added, _ = command(*ADD, "--dry-run")
    assert ([row["price"] for row in added["rates"]], command("rates", "discount", "list")[1]) == (["2.88"], [])


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((*ADD[:4], "amazonia", *ADD[5:]), 2, "no list price of this provider and kind"),
        ((*ADD[:6], "0", *ADD[7:]), 2, "percent: must be above 0"),
        ((*ADD[:6], "a third", *ADD[7:]), 2, "--percent: is no number"),
        (("rates", "discount", "end", "7"), 1, "there is no discount 7"),
    ],
)
def test_what_is_wrong_is_said(command: Command, hour: None, words: tuple[str, ...], code: int, said: str) -> None:
    found, _, error = command(*words)
    assert found == code
    assert said in error
