"""The GPUs of found targets stand in the inventory exactly while the target is there, for what it serves."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sqlalchemy import Engine, text

from cli.doctor_sources import unpaid
from cli.inventory import FoundInventory
from cli.settings import load
from core.ports import FoundTarget
from models.database import transaction
from models.join_repo import identities
from models.partitions import ensure_months

T0 = datetime(2026, 11, 30, 14, tzinfo=UTC)
HOUR = timedelta(hours=1)
TARGET = FoundTarget("http://gpu-1:8000/metrics", "A10G", 1, "node-1", "c", "n", "chat")
Row = tuple[str, str, int, datetime, datetime | None]


def rows(db: Engine) -> list[Row]:
    """(model, GPU type, count, from, to) in the order they were declared."""
    query = "SELECT model_id, gpu_type, gpu_count, in_service_from, in_service_to FROM node_service ORDER BY id"
    with transaction(db) as connection:
        return [(r[0], r[1], r[2], r[3], r[4]) for r in connection.execute(text(query))]


def keep(db: Engine, inventory: FoundInventory, *targets: FoundTarget, at: datetime) -> int:
    with transaction(db) as connection:
        return inventory.keep(connection, targets, at)


def sampled(db: Engine, model: str, at: datetime) -> None:
    with transaction(db) as connection:
        ensure_months(connection, [at])
        connection.execute(
            text(
                "INSERT INTO engine_minute (minute, cluster, namespace, model_id, target, engine, node)"
                " VALUES (:at, 'c', 'n', :model, :target, '0', 'node-1')"
            ),
            {"at": at, "model": model, "target": TARGET.url},
        )


def test_gpus_are_in_service_from_when_the_target_is_found_until_it_goes(db: Engine) -> None:
    inventory = FoundInventory("discovery")
    assert [keep(db, inventory, TARGET, at=T0 + n * HOUR) for n in range(3)] == [1, 0, 0]
    with transaction(db) as connection:
        assert inventory.drop(connection, [TARGET.url], T0 + 3 * HOUR) == 1
    assert rows(db) == [("chat", "A10G", 1, T0, T0 + 3 * HOUR)]


def test_by_what_id_a_node_is_billed_is_noted_until_it_is_another(db: Engine) -> None:
    inventory, first = FoundInventory("discovery"), replace(TARGET, provider_id="aws:///a/i-1", instance_type="g5.xlarge")
    for at in (T0, T0 + HOUR):
        keep(db, inventory, first, at=at)
    keep(db, FoundInventory("discovery"), first, at=T0 + 2 * HOUR)  # after a restart
    keep(db, inventory, replace(first, provider_id="aws:///a/i-2"), at=T0 + 3 * HOUR)
    with transaction(db) as connection:
        found = identities(connection)
    assert [(i.cluster, i.node, i.provider_id, i.instance_type, i.valid_from, i.valid_to) for i in found] == [
        ("c", "node-1", "aws:///a/i-1", "g5.xlarge", T0, T0 + 3 * HOUR),
        ("c", "node-1", "aws:///a/i-2", "g5.xlarge", T0 + 3 * HOUR, None),
    ]


def test_a_pods_gpus_are_taken_from_its_start_but_never_twice(db: Engine) -> None:
    inventory, pod = FoundInventory("discovery"), replace(TARGET, since=T0 - HOUR)
    keep(db, inventory, pod, at=T0)
    with transaction(db) as connection:
        inventory.drop(connection, [TARGET.url], T0 + HOUR)
    keep(db, inventory, pod, at=T0 + 2 * HOUR)
    assert rows(db) == [("chat", "A10G", 1, T0 - HOUR, T0 + HOUR), ("chat", "A10G", 1, T0 + HOUR, None)]


def test_a_process_that_starts_again_declares_nothing_twice_and_ends_what_went_meanwhile(db: Engine) -> None:
    other = replace(TARGET, url="http://gpu-2:8000/metrics", node="node-2")
    keep(db, FoundInventory("discovery"), TARGET, other, at=T0)
    again = FoundInventory("discovery")
    assert keep(db, again, TARGET, at=T0 + HOUR) == 0
    with transaction(db) as connection:
        assert again.drop_missing(connection, [TARGET.url], T0 + HOUR) == 1
    assert [row[4] for row in rows(db)] == [None, T0 + HOUR]


def test_other_sources_services_are_left_alone(db: Engine) -> None:
    keep(db, FoundInventory("prometheus main"), TARGET, at=T0)
    with transaction(db) as connection:
        assert FoundInventory("discovery").drop_missing(connection, [], T0 + HOUR) == 0
    assert rows(db)[0][4] is None


def test_other_gpus_at_an_address_count_from_now_on(db: Engine) -> None:
    inventory = FoundInventory("discovery")
    keep(db, inventory, TARGET, at=T0)
    keep(db, inventory, replace(TARGET, gpu="H100-80GB", count=2), at=T0 + HOUR)
    assert rows(db) == [("chat", "A10G", 1, T0, T0 + HOUR), ("chat", "H100-80GB", 2, T0 + HOUR, None)]


def test_without_a_model_the_page_tells_which_deployment_it_is(db: Engine) -> None:
    inventory, nameless = FoundInventory("discovery"), replace(TARGET, model_id="")
    assert keep(db, inventory, nameless, at=T0) == 0
    sampled(db, "chat", T0)
    assert keep(db, inventory, nameless, at=T0 + timedelta(minutes=1)) == 1
    assert rows(db) == [("chat", "A10G", 1, T0, None)]


def test_another_model_at_an_address_takes_its_gpus_over(db: Engine) -> None:
    nameless = replace(TARGET, model_id="")
    sampled(db, "chat", T0)
    keep(db, FoundInventory("discovery"), nameless, at=T0)
    sampled(db, "code", T0 + HOUR)
    keep(db, FoundInventory("discovery"), nameless, at=T0 + HOUR)
    assert [(row[0], row[3], row[4]) for row in rows(db)] == [("chat", T0, T0 + HOUR), ("code", T0 + HOUR, None)]


def test_unknown_gpus_are_never_guessed(db: Engine) -> None:
    unknown = [replace(TARGET, gpu=""), replace(TARGET, count=0), replace(TARGET, node=""), replace(TARGET, unknown="a slice")]
    assert keep(db, FoundInventory("discovery"), *unknown, at=T0) == 0
    assert rows(db) == []


def test_doctor_names_an_engine_that_is_read_and_not_paid_for(db: Engine, db_url: str) -> None:
    now = datetime.now(UTC)
    settings = load(db_url=db_url)
    assert list(unpaid("prometheus main", settings, {TARGET.url, "http://gpu-exporter:9400/metrics"})) == []
    sampled(db, "chat", now)
    [finding] = unpaid("prometheus main", settings, {TARGET.url, "http://gpu-exporter:9400/metrics"})
    assert (finding.verdict, TARGET.url in finding.found) == ("error", True)
    keep(db, FoundInventory("prometheus main"), TARGET, at=now)
    assert list(unpaid("prometheus main", settings, {TARGET.url})) == []
