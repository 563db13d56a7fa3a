"""Bills against the ledger, over HTTP."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pytest
from api_client import Api, TokenMaker
from bill_lines import cur_line, write_cur
from sqlalchemy import Engine

from ingest.billing.adapter import BillOptions
from ingest.billing.delivery import Accept
from ingest.billing.importer import BillImport
from ingest.billing.layouts import find_deliveries
from ingest.billing.registry import ADAPTERS
from ingest.billing.stores import LocalFiles
from ingest.billing.switch import ImportSettings

pytestmark = pytest.mark.db


@pytest.fixture
def july(db: Engine, tmp_path: Path) -> None:
    """52.40 USD: a plan half used, and a line of June that came late."""
    rows = [
        cur_line("SavingsPlanRecurringFee", {"unblended": "52.40", "sp_total": "52.40", "sp_used": "26.20"}, resource=""),
        cur_line("SavingsPlanCoveredUsage", {"unblended": "39.30", "sp_effective": "26.20", "public": "39.30"}),
        cur_line("SavingsPlanNegation", {"unblended": "-39.30"}, resource=""),
        cur_line("Usage", {"unblended": "1.25"}, product="AmazonS3", usage_type="Bytes", start="2026-06-30T00:00:00Z"),
    ]
    store = LocalFiles(write_cur(tmp_path / "july.csv", rows))
    now = datetime.fromisoformat("2026-08-05T00:00:00+00:00")
    job = ImportSettings(db, tmp_path / "data", "aws-cur", ADAPTERS["aws-cur"], BillOptions(), Accept(), now)
    for found in find_deliveries(store, needs_manifest=False):
        BillImport(job).run(store, found)


def test_the_newest_period_step_by_step(api: Api, token: TokenMaker, july: None) -> None:
    answer = api.get("/v1/reconcile", token("read")).json()
    assert (answer["period"], answer["periods"]) == ("2026-07", ["2026-07"])
    (one,) = answer["waterfalls"]
    assert (one["currency"], one["state"], one["difference"]) == ("USD", "provisional", "0")
    assert [d["version"] for d in one["deliveries"]] == [1]
    named = {(row["step"], row["bucket"]): (row["billed_cost"], row["effective_cost"]) for row in one["rows"]}
    assert named["invoice", "invoice total"] == ("53.65", "53.65")
    assert named["invoice", "unused_commitment"] == ("0", "26.2")
    assert named["months", "used in 2026-06"] == ("1.25", "1.25")
    assert named["basis", "effective less billed: commitment_fee"] == (None, "-52.4")
    steps = {row["step"] for row in one["rows"]}
    for step in steps:
        parts = [row for row in one["rows"] if row["step"] == step and row["parent"]]
        if parts[0]["parent"] in ("invoice total", "effective total"):
            assert sum(Decimal(row["effective_cost"]) for row in parts) == Decimal("53.65")


def test_by_usage_june_has_its_late_line(api: Api, token: TokenMaker, july: None) -> None:
    answer = api.get("/v1/reconcile", token("read"), view="usage", period="2026-06").json()
    assert answer["periods"] == ["2026-06", "2026-07"]
    (one,) = answer["waterfalls"]
    assert (one["rows"][0]["billed_cost"], one["view"]) == ("1.25", "usage")
    assert [row["bucket"] for row in one["rows"] if row["step"] == "months" and row["parent"]] == ["billed in 2026-07"]


def test_without_a_bill_there_is_nothing(api: Api, token: TokenMaker) -> None:
    answer = api.get("/v1/reconcile", token("read"))
    assert (answer.status_code, answer.json()["period"], answer.json()["waterfalls"]) == (200, None, [])


@pytest.mark.parametrize(
    ("changed", "field"), [({"period": "July"}, "period"), ({"view": "bill"}, "view"), ({"currency": "$"}, "currency")]
)
def test_a_wrong_question_names_the_parameter(api: Api, token: TokenMaker, changed: dict[str, str], field: str) -> None:
    answer = api.get("/v1/reconcile", token("read"), **changed)
    assert (answer.status_code, answer.json()["error"]["field"]) == (400, field)


def test_a_tenants_token_is_refused(api: Api, token: TokenMaker) -> None:
    assert api.get("/v1/reconcile", token("read", tenant="acme")).status_code == 403
