"""Charges are joined again when deliveries, people or the inventory change; windows are marked where the money changed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from bill_takes import Takes
from join_world import D, charged, identify, line, serve, tags, unmatched
from sqlalchemy import Connection, Engine, insert, text

from control.charge_join import JoinPlace, confirm_match, ignore_resource, rejoin, rejoin_due, undo
from core.errors import BadInput, Conflict, NotFound, Unavailable
from core.money import total
from core.usage import Deployment
from core.windows import Window
from ingest.billing.delivery import Accept
from models.database import transaction
from models.join_repo import read_machines
from models.join_views import node_costs, uncharged_nodes
from models.node_charge_repo import read_node_charges
from models.tables import LedgerHeadRow

pytestmark = pytest.mark.db
NOW = datetime(2026, 8, 2, tzinfo=UTC)
JULY = datetime(2026, 7, 1, tzinfo=UTC)
MONTH = Window(JULY, datetime(2026, 8, 1, tzinfo=UTC))


@pytest.fixture
def take(db: Engine, tmp_path: Path) -> Takes:
    return Takes(db, tmp_path, "aws-cur")


@pytest.fixture
def place(tmp_path: Path) -> JoinPlace:
    return JoinPlace(tmp_path / "data")


@pytest.fixture
def connection(db: Engine) -> Iterator[Connection]:
    with transaction(db) as opened:
        yield opened


def close(db: Engine, *hours: int, deployment: Deployment = D) -> None:
    """The quarter hours of these hours of 1 July are closed."""
    starts = [JULY + timedelta(hours=hour, minutes=15 * n) for hour in hours for n in range(4)]
    place = {"cluster": deployment.cluster, "namespace": deployment.namespace, "model_id": deployment.model_id}
    with db.begin() as connection:
        connection.execute(insert(LedgerHeadRow), [{**place, "window_start": at, "version": 1} for at in starts])


def marked(db: Engine) -> list[tuple[str, int]]:
    """(model, hour) of windows to close again; they are unmarked by reading."""
    with db.begin() as connection:
        rows = connection.execute(text("DELETE FROM dirty_window RETURNING model_id, window_start")).all()
    return sorted({(row[0], row[1].astimezone(UTC).hour) for row in rows})


def test_only_windows_whose_money_changed_are_marked(db: Engine, take: Takes) -> None:
    other = Deployment("lab", "prod", "other")
    serve(db)
    serve(db, "n2", deployment=other)
    identify(db, "n1", "i-1")
    marked(db)
    close(db, 0, 1, 2, 3)
    close(db, 0, 1, deployment=other)
    take.rows([line(hour=0), line(hour=1), line(hour=2)])
    assert marked(db) == [("tiny", 0), ("tiny", 1), ("tiny", 2)]
    take.rows([line(hour=0), line(hour=1, cost="1.50"), line(hour=2)])
    assert marked(db) == [("tiny", 1)]
    take.rows([line(hour=0), line(hour=1, cost="1.50"), line(hour=2), line("i-7", hour=2)])
    assert marked(db) == []
    take.rows([line(hour=h, cost="1.50" if h == 1 else "2.00", invoice="I") for h in (0, 1, 2)])
    assert marked(db) == [("tiny", 0), ("tiny", 1), ("tiny", 2)], "the invoice is issued: the windows can be final"


def test_a_superseded_delivery_leaves_with_its_charges(db: Engine, take: Takes) -> None:
    serve(db)
    identify(db, "n1", "i-1")
    take.rows([line(cost="2.00")])
    take.rows([line(cost="3.00")])
    assert charged(db) == [("n1", "i-1", Decimal("3.00"), "provider id")]
    take.rows([line(cost="5.00")], export="second", accept=Accept(instead_of="main"))
    assert charged(db) == [("n1", "i-1", Decimal("5.00"), "provider id")]
    with db.connect() as connection:
        (charge,) = read_node_charges(connection, MONTH)
        assert connection.execute(text("SELECT count(*) FROM charge_join")).scalar_one() == 1
    assert (charge.effective, charge.source, charge.gpus, charge.is_final) == (Decimal("5.00"), "aws second 2026-07 v1", 8, False)


def test_a_refused_delivery_changes_nothing(db: Engine, take: Takes) -> None:
    serve(db)
    identify(db, "n1", "i-1")
    take.rows([line(hour=0), line(day=3)])
    before = charged(db)
    with pytest.raises(Conflict, match="ends on"):
        take.rows([line(hour=0, cost="9.00")])
    assert charged(db) == before


def test_a_dry_run_of_an_import_joins_nothing_and_an_empty_inventory_lists_all(db: Engine, take: Takes) -> None:
    (bill,) = take.rows([line(), line("i-2", "3.00")])
    assert [(row.node, row.effective) for row in bill.nodes] == [("", Decimal("5.00"))]
    assert [row[0] for row in unmatched(db)] == ["i-1", "i-2"]


def test_a_node_that_is_found_later_gets_its_charges(db: Engine, take: Takes, place: JoinPlace) -> None:
    take.rows([line(), line("i-2", "3.00", more=tags(node="n2"))])
    assert rejoin_due(db, place, NOW) == 0
    serve(db, "n2")
    assert rejoin_due(db, place, NOW) == 1
    assert charged(db) == [("n2", "i-2", Decimal("3.00"), "node tag")]
    identify(db, "n1", "i-unbilled")
    assert (rejoin_due(db, place, NOW), rejoin_due(db, place, NOW)) == (0, 0)
    identify(db, "n1", "i-1")
    assert rejoin_due(db, place, NOW) == 1
    assert [row[0] for row in charged(db)] == ["n1", "n2"]


def test_a_correction_of_a_closed_month_adds_to_its_hours(db: Engine, take: Takes) -> None:
    serve(db)
    identify(db, "n1", "i-1")
    take.rows([line(cost="10.00")])
    take.rows(
        [line(cost="-4.00", line_type="Refund", period="2026-08-01T00:00:00Z")], name="august.csv", accept=Accept(overlap=True)
    )
    with db.connect() as connection:
        found = read_node_charges(connection, MONTH)
    assert [(c.bucket, c.effective, c.hour) for c in found] == [
        ("gpu", Decimal("10.00"), JULY), ("refund", Decimal("-4.00"), JULY),
    ]  # fmt: skip


def test_a_person_confirms_previews_and_undoes(db: Engine, take: Takes, place: JoinPlace) -> None:
    serve(db)
    close(db, 0)
    take.rows([line(cost="2.00"), line(day=2, cost="7.00")])
    marked(db)
    with db.connect() as connection:
        preview = confirm_match(connection, place, "i-1", "n1", "ann", NOW)
        connection.rollback()
    assert (charged(db), marked(db)) == ([], [])
    with transaction(db) as connection:
        done = confirm_match(connection, place, "i-1", "n1", "ann", NOW, reason="asked ops")
    assert preview.rejoined == done.rejoined
    assert [(m.node, m.effective) for m in done.rejoined.moved] == [("", Decimal("-9.00")), ("n1", Decimal("9.00"))]
    assert total(m.effective for m in done.rejoined.moved) == 0
    assert (charged(db), marked(db)) == ([("n1", "i-1", Decimal("9.00"), "person")], [("tiny", 0)])
    with transaction(db) as connection:
        back = undo(connection, place, done.match.id, "ben", NOW)
    assert [(m.node, m.effective) for m in back.rejoined.moved] == [("", Decimal("9.00")), ("n1", Decimal("-9.00"))]
    assert charged(db) == []
    with db.connect() as connection:
        told = connection.execute(text("SELECT action, actor, subject FROM audit ORDER BY seq")).all()
    assert [tuple(row) for row in told] == [
        ("match.confirm", "ann", "resource:i-1"), ("match.undo", "ben", "resource:i-1"),
    ]  # fmt: skip


def test_a_match_of_a_part_of_the_time(db: Engine, take: Takes, place: JoinPlace) -> None:
    serve(db)
    take.rows([line(hour=h) for h in range(4)])
    with transaction(db) as connection:
        confirm_match(connection, place, "i-1", "lab/n1", "ann", NOW, valid_from=JULY + timedelta(hours=3))
    assert charged(db) == [("n1", "i-1", Decimal("2.00"), "person")]
    assert unmatched(db) == [("i-1", "no machine", Decimal("6.00"))]


def test_reserved_capacity_is_a_machines_only_by_a_person(db: Engine, take: Takes, place: JoinPlace) -> None:
    serve(db, "cr-1")
    take.rows([line("cr-1", usage_type="UnusedBox:p4d.24xlarge")])
    assert unmatched(db) == [("cr-1", "unused", Decimal("2.00"))]
    with transaction(db) as connection:
        confirm_match(connection, place, "cr-1", "cr-1", "ann", NOW)
    assert charged(db) == [("cr-1", "cr-1", Decimal("2.00"), "person")]


def test_what_a_person_may_not_say(db: Engine, take: Takes, place: JoinPlace, connection: Connection) -> None:
    serve(db)
    serve(db, deployment=Deployment("edge", "prod", "tiny"))
    take.rows([line()])
    for resource, node, error, words in (
        ("i-1", "n9", NotFound, "no node 'n9'"),
        ("i-1", "n1", BadInput, "several clusters"),
        ("i-9", "lab/n1", NotFound, "no bill in force charges 'i-9'"),
    ):
        with pytest.raises(error, match=words):
            confirm_match(connection, place, resource, node, "ann", NOW)
    with pytest.raises(BadInput, match="whole hour"):
        confirm_match(connection, place, "i-1", "lab/n1", "ann", NOW, valid_from=JULY + timedelta(minutes=30))
    with pytest.raises(BadInput, match="must be after from"):
        confirm_match(connection, place, "i-1", "lab/n1", "ann", NOW, valid_from=JULY, valid_to=JULY)
    with pytest.raises(BadInput, match="must say why"):
        ignore_resource(connection, place, "i-1", "ann", NOW, reason=" ")
    ignore_resource(connection, place, "i-1", "ann", NOW, reason="a workstation")
    with pytest.raises(Conflict, match="already ignored"):
        confirm_match(connection, place, "i-1", "lab/n1", "ann", NOW)
    with pytest.raises(NotFound, match="no match 99"):
        undo(connection, place, 99, "ann", NOW)


def test_a_folder_that_is_gone_is_named_and_holds_up_no_other(db: Engine, take: Takes, place: JoinPlace) -> None:
    take.rows([line()])
    take.rows([line(period="2026-08-01T00:00:00Z", day=1)], name="august.csv", accept=Accept(overlap=True))
    first = sorted((place.data_dir / "bills").rglob("charges.parquet"))[0]
    first.rename(first.with_suffix(".away"))
    identify(db, "n1", "i-1")
    with db.connect() as connection:
        with pytest.raises(Unavailable, match=r"charges.parquet is not there"):
            rejoin(connection, place, NOW)
        connection.rollback()
    assert rejoin_due(db, place, NOW) == 1


def test_an_identity_ends_where_the_next_begins_and_the_same_again_changes_nothing(db: Engine) -> None:
    identify(db, "n1", "i-1", "p4d.24xlarge")
    identify(db, "n1", "i-1", "p4d.24xlarge")
    identify(db, "n1", "i-2", since=JULY)
    with db.connect() as connection:
        found = read_machines(connection)
    assert [(m.provider_id, m.instance_type, m.until) for m in found] == [("i-1", "p4d.24xlarge", JULY), ("i-2", "", None)]


def test_nodes_without_a_charge_where_a_bill_came(db: Engine, take: Takes, connection: Connection) -> None:
    serve(db)
    serve(db, "n2", 4, since=JULY + timedelta(hours=1))
    serve(db, "", 1, since=JULY + timedelta(hours=3))
    identify(db, "n1", "i-1")
    take.rows([line(hour=h) for h in (0, 2)] + [line("i-9", hour=3)])
    rows = uncharged_nodes(connection, NOW)
    assert [(r["node"], r["gpu_hours"], r["first_at"].hour, r["last_at"].hour) for r in rows] == [
        ("n1", Decimal(16), 1, 4), ("n2", Decimal(12), 1, 4), ("", Decimal(1), 3, 4),
    ]  # fmt: skip
    assert rows[2]["targets"] == ["http://:8000"]


def test_what_nodes_cost_and_when_nothing_served(db: Engine, take: Takes, connection: Connection) -> None:
    serve(db, since=JULY + timedelta(minutes=90))
    identify(db, "n1", "i-1")
    take.rows([line(hour=h, cost="13.00") for h in range(3)] + [line(cost="-1.00", line_type="Credit")])
    (row,) = node_costs(connection, MONTH)
    assert (row["hours"], row["gpus"], row["effective_cost"], row["unassigned_hours"]) == (
        Decimal(3), 8, Decimal("38.00"), Decimal("1.5"),
    )  # fmt: skip
    hours = node_costs(connection, MONTH, by_hour=True)
    assert [(r["hour"].hour, r["effective_cost"]) for r in hours] == [(0, Decimal("12.00")), (1, Decimal(13)), (2, Decimal(13))]
