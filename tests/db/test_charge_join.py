"""Charges of imported bills to the machines of the inventory: by which rule, to which hour, and exactly."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from bill_takes import Takes
from join_world import charged, identify, line, serve, tags, unmatched
from sqlalchemy import Engine, text

from core.usage import Deployment

pytestmark = pytest.mark.db


@pytest.fixture
def take(db: Engine, tmp_path: Path) -> Takes:
    return Takes(db, tmp_path, "aws-cur")


def test_by_instance_id_provider_id_tag_and_name(db: Engine, take: Takes) -> None:
    for node in ("i-own", "ip-10-0-0-1", "ip-10-0-0-2", "gpu-4"):
        serve(db, node)
    identify(db, "ip-10-0-0-1", "aws:///us-east-1a/i-0abc", "p4d.24xlarge")
    take.rows(
        [
            line("arn:aws:ec2:us-east-1:012345678901:instance/i-own", "1.10"),
            line("i-0abc", "1.20"),
            line("i-2", "1.30", more=tags(node="ip-10-0-0-2")),
            line("i-4", "1.40", more=tags(Name="GPU-4")),
            line("i-unknown", "1.50", more=tags(Name="web")),
            line("", "1.60"),
        ]
    )
    assert charged(db) == [
        ("gpu-4", "i-4", Decimal("1.40"), "name"),
        ("i-own", "arn:aws:ec2:us-east-1:012345678901:instance/i-own", Decimal("1.10"), "instance id"),
        ("ip-10-0-0-1", "i-0abc", Decimal("1.20"), "provider id"),
        ("ip-10-0-0-2", "i-2", Decimal("1.30"), "node tag"),
    ]
    assert unmatched(db) == [
        ("", "names no machine", Decimal("1.60")),
        ("i-unknown", "no machine", Decimal("1.50")),
    ]


def test_two_that_fit_are_not_matched_and_both_are_named(db: Engine, take: Takes) -> None:
    serve(db, "n1")
    serve(db, "n1", deployment=Deployment("other", "prod", "tiny"))
    take.rows([line("i-9", more=tags(node="n1"))])
    assert charged(db) == []
    with db.connect() as connection:
        row = connection.execute(text("SELECT reason, candidates FROM charge_unmatched")).one()
    assert tuple(row) == ("several machines", [["lab", "n1"], ["other", "n1"]])


def test_a_daily_line_is_spread_over_its_hours_and_an_hourly_one_stays(db: Engine, take: Takes) -> None:
    serve(db)
    identify(db, "n1", "i-1")
    take.rows([line("i-1", "1.00", 3), line("i-1", "24.01", 0, day=2, hours=24)])
    with db.connect() as connection:
        rows = connection.execute(text("SELECT hour, effective, hours, gpus FROM node_charge ORDER BY hour")).all()
    assert [(row.hour.hour, row.effective, row.hours, row.gpus) for row in rows[:2]] == [
        (3, Decimal("1.00"), Decimal(1), 8),
        (0, Decimal("1.000416666666"), Decimal(1), 8),
    ]
    assert len(rows) == 25
    assert sum(row.effective for row in rows[1:]) == Decimal("24.01")
