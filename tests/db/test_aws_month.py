"""The generated AWS month, imported by the real command in four deliveries: the ledger closes on each, each cent has a name.

July comes three times (its first third; whole and restated; restated and final), then August with a correction of July. What is
compared with is said by the generator, which knows no importer.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from aws_world import furnish
from bill_lines import cur_line, write_cur
from cli_command import Command
from sqlalchemy import Engine, text

from cli.demo.aws_export import write_delivery
from cli.demo.aws_machines import JULY
from cli.demo.aws_month import Account, Delivery, july_deliveries
from cli.demo.aws_truth import Truth, truth
from core.money import ZERO, total
from core.windows import Window
from models.node_charge_repo import read_node_charges

pytestmark = pytest.mark.db
ACCOUNT = Account()
FIRST, SECOND, THIRD, AUGUST = july_deliveries()
IN_INVENTORY = {machine.node for machine in JULY if machine.holds}
EVER = Window(datetime(2026, 6, 1, tzinfo=UTC), datetime(2026, 10, 1, tzinfo=UTC))


class Months:
    """Delivers months and closes the ledger after each."""

    def __init__(self, command: Command, folder: Path, spelling: str = "legacy") -> None:
        self._command, self._folder, self._spelling = command, folder, spelling

    def deliver(self, delivery: Delivery) -> Truth:
        """Import by the command, close what is due, and return what the generator says the delivery is."""
        export = write_delivery(self._folder, ACCOUNT, delivery, self._spelling)  # type: ignore[arg-type]
        code, said, error = self._command("ingest", "bill", str(export), "--format", "aws-cur")
        assert (code, said["refused"]) == (0, []), error
        self.close()
        return truth(ACCOUNT.lines(delivery))

    def close(self) -> dict[str, Any]:
        code, said, error = self._command("ledger", "close")
        assert (code, said["failures"], said["held"]) == (0, [], ""), error
        return dict(said)

    def reconciled(self, *words: str) -> list[dict[str, Any]]:
        code, rows, error = self._command("reconcile", *words)
        assert code == 0, error
        assert not [row for row in rows if row["is_difference"]]
        return list(rows)


@pytest.fixture
def months(db: Engine, command: Command, tmp_path: Path) -> Months:
    furnish(db)
    made = Months(command, tmp_path / "bucket")
    made.close()
    return made


def pair(row: dict[str, Any]) -> tuple[Decimal, Decimal]:
    return Decimal(row["billed_cost"]), Decimal(row["effective_cost"])


def step(rows: list[dict[str, Any]], name: str) -> dict[str, Decimal]:
    return {row["bucket"]: Decimal(row["effective_cost"]) for row in rows if row["step"] == name and row["parent"]}


def ledger_closes(db: Engine) -> None:
    """Every newest version: its lines add up to its capacity cost on both bases."""
    query = """
    SELECT count(*), count(*) FILTER (WHERE w.capacity_cost IS DISTINCT FROM l.cost OR l.cost IS DISTINCT FROM l.allocated)
    FROM ledger_window w JOIN ledger_head h USING (cluster, namespace, model_id, window_start, version)
    LEFT JOIN (SELECT cluster, namespace, model_id, window_start, version, sum(cost) AS cost, sum(allocated) AS allocated
      FROM ledger_line GROUP BY 1, 2, 3, 4, 5) l USING (cluster, namespace, model_id, window_start, version)"""
    with db.connect() as connection:
        windows, broken = connection.execute(text(query)).one()
    assert windows > 80
    assert broken == 0


@pytest.mark.parametrize("delivery", [FIRST, SECOND, THIRD], ids=["first third", "restated", "final"])
def test_every_bucket_and_every_machine_hour_is_what_the_generator_says(months: Months, db: Engine, delivery: Delivery) -> None:
    for one in (FIRST, SECOND, THIRD)[: delivery.number]:
        said = months.deliver(one)
    ledger_closes(db)
    rows = months.reconciled("--period", "2026-07")
    buckets = {row["bucket"]: pair(row) for row in rows if row["step"] == "invoice" and row["parent"]}
    assert buckets == {name: costs for name, costs in said.buckets.items() if any(costs)}
    (whole,) = [row for row in rows if not row["parent"]]
    assert pair(whole) == (said.billed, said.effective)
    assert whole["state"] == ("final" if delivery.invoice else "provisional")
    found: dict[tuple[str, datetime], tuple[Decimal, Decimal]] = {}
    with db.connect() as connection:
        for charge in read_node_charges(connection, EVER):
            billed, effective = found.get((charge.node, charge.hour), (ZERO, ZERO))
            found[charge.node, charge.hour] = (total((billed, charge.billed)), total((effective, charge.effective)))
    assert found == {key: costs for key, costs in said.machines.items() if key[0] in IN_INVENTORY}


def test_what_nobody_held_is_told_by_machine_and_list_prices_are_of_running_alone(months: Months, command: Command) -> None:
    months.deliver(THIRD)
    unassigned = step(months.reconciled("--period", "2026-07"), "holders")["unassigned"]
    for words in ((), ("--by-hour",)):
        _, nodes, _ = command("show", "nodes", "--from", "2026-06-25", "--to", "2026-08-05", *words)
        assert total(Decimal(row["unassigned_cost"]) for row in nodes) == unassigned
        assert total(Decimal(row["unassigned_gpu_hours"]) for row in nodes) > 0
    prices = {row["instance_type"]: Decimal(row["list_per_hour"]) for row in nodes if row["hours"] != "0"}
    assert prices["g5.xlarge"] == Decimal("1.006")


def test_each_cent_of_julys_invoice_has_a_name(months: Months) -> None:
    for one in (FIRST, SECOND, THIRD):
        said = months.deliver(one)
    rows = months.reconciled("--period", "2026-07")
    machines = step(rows, "machines")
    assert machines["unmatched (no machine): gpu"] == 3 * Decimal("1.006")
    assert machines["unmatched (no machine): other_compute"] == said.buckets["other_compute"][1]
    assert machines["unmatched (unused): unused_reservation"] == said.buckets["unused_reservation"][1]
    on_machines = total(costs[1] for key, costs in said.machines.items() if key[0] in IN_INVENTORY)
    holders, ledger = step(rows, "holders"), step(rows, "ledger")
    assert total(holders.values()) == on_machines
    assert abs(holders["rounding"]) < Decimal("1e-9")
    assert holders["unassigned"] > 0
    assert total(ledger.values()) == holders["held by deployments"]
    assert total(step(rows, "lines").values()) == total(step(rows, "tenants").values()) == ledger["closed quarter hours"]
    assert set(step(rows, "tenants")) == {"acme/search", "acme/code", "beta/docs", "beta/batch", "(no tenant)"}
    assert {"served", "wasted", "unattributed", "idle"} <= set(step(rows, "lines"))
    assert "not closed yet" not in ledger


def test_julys_correction_is_in_augusts_invoice_and_in_julys_usage(months: Months, db: Engine) -> None:
    for one in (FIRST, SECOND, THIRD):
        july = months.deliver(one)
    august = months.deliver(AUGUST)
    ledger_closes(db)
    invoiced = months.reconciled("--period", "2026-08")
    assert step(invoiced, "months") == {
        "used in 2026-07": Decimal("-11.11"),
        "used in 2026-08": august.effective + Decimal("11.11"),
    }
    of_july = months.reconciled("--period", "2026-07")
    (whole,) = [row for row in of_july if not row["parent"]]
    assert pair(whole) == (july.billed, july.effective)
    assert step(of_july, "ledger")["of it, paid by other bills"] == Decimal("12.34")
    used = months.reconciled("--period", "2026-07", "--by-usage")
    (whole,) = [row for row in used if not row["parent"]]
    assert pair(whole) == (july.billed - Decimal("11.11"), july.effective - Decimal("11.11"))
    assert step(used, "months") == {"billed in 2026-07": july.effective, "billed in 2026-08": Decimal("-11.11")}
    both = [row for view in (used, months.reconciled("--period", "2026-08", "--by-usage")) for row in view if not row["parent"]]
    assert total(pair(row)[0] for row in both) == july.billed + august.billed


def test_cur2_folders_give_the_same_cents(db: Engine, command: Command, tmp_path: Path) -> None:
    furnish(db)
    months = Months(command, tmp_path / "exports", "cur2")
    said = months.deliver(THIRD)
    rows = months.reconciled("--period", "2026-07")
    buckets = {row["bucket"]: pair(row) for row in rows if row["step"] == "invoice" and row["parent"]}
    assert buckets == {name: costs for name, costs in said.buckets.items() if any(costs)}


def test_before_the_ledger_is_closed_the_held_money_is_named_with_what_to_do(
    db: Engine, command: Command, tmp_path: Path
) -> None:
    furnish(db)
    export = write_delivery(tmp_path / "bucket", ACCOUNT, FIRST)
    command("ingest", "bill", str(export), "--format", "aws-cur")
    code, rows, _ = command("reconcile")
    assert code == 0
    (row,) = [row for row in rows if row["bucket"] == "not closed yet"]
    assert (row["is_open"], "ledger close" in row["hint"]) == (True, True)
    assert Decimal(row["effective_cost"]) == step(rows, "holders")["held by deployments"]


def test_a_restated_bill_waits_for_the_next_close(months: Months, command: Command, tmp_path: Path) -> None:
    months.deliver(FIRST)
    export = write_delivery(tmp_path / "bucket", ACCOUNT, SECOND)
    command("ingest", "bill", str(export), "--format", "aws-cur")
    code, rows, _ = command("reconcile")
    assert code == 0
    waiting = [row for row in rows if row["bucket"] in ("to be closed again", "closed before this bill")]
    assert all(row["is_open"] for row in waiting)
    assert {row["bucket"] for row in waiting} == {"to be closed again", "closed before this bill"}


def test_a_bill_that_gave_way_leaves_its_quarter_hours_open_until_the_next_close(
    months: Months, command: Command, tmp_path: Path
) -> None:
    months.deliver(FIRST)
    line = cur_line("Usage", {"unblended": "1"}, product="AmazonS3", usage_type="Bytes", start="2026-07-10T00:00:00Z")
    other = write_cur(tmp_path / "other.csv", [line])
    code, said, error = command("ingest", "bill", str(other), "--format", "aws-cur", "--instead-of", "generated-aws-month")
    assert (code, said["refused"]) == (0, []), error
    rows = months.reconciled("--by-usage")
    ledger = step(rows, "ledger")
    assert ledger["to be closed again"] == -ledger["closed quarter hours"] < 0
    months.close()
    assert step(months.reconciled("--by-usage"), "ledger") == {"closed quarter hours": ZERO}


def test_without_a_bill_it_says_how_to_import_one(command: Command) -> None:
    assert command("reconcile") == (0, [], "")
    code, _, error = command("reconcile", "--period", "July")
    assert (code, "--period: is not a month" in error) == (2, True)


def statement_of(command: Command, month: str) -> dict[str, Any]:
    code, found, error = command("ledger", "statement", month)
    assert code == 0, error
    return dict(found)


def test_julys_correction_is_posted_in_augusts_statement_and_the_closed_july_stays(months: Months, command: Command) -> None:
    for one in (FIRST, SECOND, THIRD):
        months.deliver(one)
    code, closed, error = command("ledger", "close-period", "2026-07", "--reason", "invoice issued")
    assert (code, closed["refusal"]) == (0, ""), error
    sent = statement_of(command, "2026-07")
    months.deliver(AUGUST)
    assert statement_of(command, "2026-07") == sent
    august = statement_of(command, "2026-08")
    corrections = [row for row in august["rows"] if row["section"] == "correction"]
    assert {row["month"] for row in corrections} == {"2026-07"}
    assert total(Decimal(row["amount"]) for row in corrections) == Decimal("-12.34")
    assert all("generated-aws-month 2026-08 v1" in row["why"] for row in corrections)
    months.reconciled()


def test_a_shared_rule_takes_its_charges_once_in_each_view(months: Months, command: Command) -> None:
    for one in (FIRST, SECOND, THIRD, AUGUST):
        months.deliver(one)
    storage = ("storage", "--service", "AmazonS3", "--method", "weight", "--from", "2026-07-01", "--owner", "platform")
    assert command("shared", "add", *storage)[0] == 0
    name = "shared by storage: non_gpu"
    by_invoice = [step(months.reconciled("--period", month), "shared")[name] for month in ("2026-07", "2026-08")]
    by_usage = [step(months.reconciled("--period", month, "--by-usage"), "shared")[name] for month in ("2026-07", "2026-08")]
    assert total(by_invoice) == total(by_usage)
    assert by_usage[0] - by_invoice[0] == Decimal("1.23")
