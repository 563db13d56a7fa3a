"""Hours that are alike are shared once: the answer is what each hour shared by itself gives."""

from __future__ import annotations

from datetime import timedelta

import pytest
from charge_rows import add_node_charges, bill, node_charge
from money_rows import T0, D
from sqlalchemy import Engine

from core.capacity import NodeService
from core.capacity_charges import by_machine_hour, share_hour
from core.usage import Deployment
from core.windows import Window
from models.node_charge_repo import read_node_charges
from models.rates_repo import declare_service, read_services
from models.trueup_repo import hour_shares

pytestmark = pytest.mark.db
HOUR = timedelta(hours=1)
SPAN = Window(T0, T0 + 12 * HOUR)
OTHER = Deployment("lab", "prod", "other")


def test_a_day_of_changing_services_and_costs(db: Engine) -> None:
    """One service ends and another begins within hours, another cost in the middle, a correction by a later bill."""
    services = [
        NodeService(D, "http://engine", "node1", "A10G", 1, T0 - HOUR, T0 + 6 * HOUR + timedelta(minutes=20)),
        NodeService(OTHER, "http://other", "node1", "A10G", 2, T0 + 3 * HOUR + timedelta(minutes=5)),
    ]
    with db.begin() as connection:
        for service in services:
            declare_service(connection, service, "test")
        july, august = bill(connection, T0), bill(connection, T0, export="late")
        costs = ["0.52"] * 5 + ["0.7300000000001"] * 7
        add_node_charges(connection, july, [node_charge(july, T0 + n * HOUR, cost) for n, cost in enumerate(costs)], T0)
        add_node_charges(connection, august, [node_charge(august, T0 + 8 * HOUR, "-0.1")], T0)
        found = list(hour_shares(connection, SPAN))
        held = read_services(connection, SPAN)
        alone = [share_hour(group, held) for group in by_machine_hour(read_node_charges(connection, SPAN)).values()]
    assert found == alone
    assert len({share.held.__repr__() for hour in found for share in hour.shares}) > 3
