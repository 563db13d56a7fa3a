"""The join over HTTP: what is unmatched, a person's word, its preview and its undoing."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from api_client import Api, TokenMaker
from bill_lines import cur_line, write_cur
from sqlalchemy import Engine

from api.settings import ApiSettings
from core.capacity import NodeService
from core.usage import Deployment
from ingest.billing.adapter import BillOptions
from ingest.billing.delivery import Accept
from ingest.billing.importer import BillImport
from ingest.billing.layouts import find_deliveries
from ingest.billing.registry import ADAPTERS
from ingest.billing.stores import LocalFiles
from ingest.billing.switch import ImportSettings
from models.rates_repo import declare_service

pytestmark = pytest.mark.db
JULY = datetime(2026, 7, 1, tzinfo=UTC)
CONFIRM = {"resource_id": "i-1", "node": "lab/n1", "reason": "asked ops"}


@pytest.fixture
def billed(db: Engine, settings: ApiSettings, tmp_path: Path) -> None:
    """Node n1 serves since July; one hour of a p4d.24xlarge named i-1 is billed."""
    with db.begin() as connection:
        service = NodeService(Deployment("lab", "prod", "tiny"), "http://n1", "n1", "A100-40GB", 8, JULY)
        declare_service(connection, service, "test")
    store = LocalFiles(write_cur(tmp_path / "july.csv", [cur_line("Usage", {"unblended": "13.00"})]))
    job = ImportSettings(
        db, settings.data_dir, "aws-cur", ADAPTERS["aws-cur"], BillOptions(), Accept(), datetime(2026, 8, 1, tzinfo=UTC)
    )
    (found,) = find_deliveries(store, needs_manifest=False)
    BillImport(job).run(store, found)


@pytest.fixture
def operate(token: TokenMaker) -> str:
    return token("operate", "read", name="ann's laptop")


@pytest.mark.usefixtures("billed")
def test_a_charge_is_suggested_confirmed_and_undone(api: Api, operate: str) -> None:
    before = api.get("/v1/unmatched", operate).json()
    (charge,) = before["charges"]
    assert (charge["resource_id"], charge["effective_cost"], charge["reason"]) == ("i-1", "13", "no machine")
    assert (charge["suggestion"]["node"], before["nodes"][0]["suggestion"]["resource_id"]) == ("lab/n1", "i-1")
    assert before["nodes"][0]["gpu_hours"] == "8"

    preview = api.post("/v1/matches", operate, {**CONFIRM, "dry_run": True}).json()
    assert [(row["node"], row["effective"]) for row in preview["moved"]] == [("", "-13"), ("n1", "13")]
    assert api.get("/v1/matches", operate).json() == {"matches": []}

    done, again = (api.post("/v1/matches", operate, CONFIRM).json() for _ in range(2))
    assert (done["changed"], again["changed"], again["moved"]) == (True, False, [])
    nothing = {"charges": [], "ignored": [], "nodes": [], "deliveries": 1, "not_joined": 0}
    assert api.get("/v1/unmatched", operate).json() == nothing
    undone = api.post(f"/v1/matches/{done['match']['id']}/undo", operate, {}).json()
    assert undone["match"]["undone_by"] == "ann's laptop"
    assert api.get("/v1/unmatched", operate).json() == before
    actions = [record["action"] for record in api.get("/v1/audit", operate).json()["records"]]
    assert actions == ["match.undo", "match.confirm"]


@pytest.mark.usefixtures("billed")
def test_what_is_refused_says_why(api: Api, operate: str, token: TokenMaker) -> None:
    assert api.post("/v1/matches", operate, {**CONFIRM, "node": "lab/n9"}).status_code == 404
    assert api.post("/v1/matches", operate, {**CONFIRM, "resource_id": "i-9"}).status_code == 404
    half = api.post("/v1/matches", operate, {**CONFIRM, "valid_from": "2026-07-01T00:30:00Z"})
    assert (half.status_code, half.json()["error"]["field"]) == (400, "from")
    api.post("/v1/matches", operate, {"resource_id": "i-1", "reason": "a workstation"})
    conflict = api.post("/v1/matches", operate, CONFIRM)
    assert (conflict.status_code, "undo" in conflict.json()["error"]["hint"]) == (409, True)
    assert [row["resource_id"] for row in api.get("/v1/unmatched", operate).json()["ignored"]] == ["i-1"]
    assert api.post("/v1/matches/99/undo", operate, {}).status_code == 404
    assert api.post("/v1/matches", token("read"), CONFIRM).status_code == 403
    assert api.get("/v1/unmatched", token("read", tenant="acme")).status_code == 403


@pytest.mark.usefixtures("billed")
def test_nodes_have_effective_rates(api: Api, operate: str, token: TokenMaker) -> None:
    july = {"from": "2026-07-01T00:00:00Z", "to": "2026-08-01T00:00:00Z"}
    assert api.get("/v1/nodes", operate, **july).json()["rows"] == []
    api.post("/v1/matches", operate, CONFIRM)
    answer = api.get("/v1/nodes", operate, **july).json()
    (row,) = answer["rows"]
    names = ("cluster", "node", "resource_id", "matched_by", "hours", "gpus", "effective_cost", "effective_per_gpu_hour")
    assert [row[name] for name in names] == ["lab", "n1", "i-1", "person", "1", 8, "13", "1.625"]
    parts = [*row["gpu_cost"].values(), row["cpu_cost"], row["memory_cost"]]
    assert (sum(map(Decimal, parts)), answer["total_rows"], "hour" in row) == (13, 1, False)
    (hourly,) = api.get("/v1/nodes", operate, by_hour="true", **july).json()["rows"]
    assert hourly["hour"].startswith("2026-07-01T")
    assert api.get("/v1/nodes", token("read", tenant="acme"), **july).status_code == 403
