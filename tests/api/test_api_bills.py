"""Bills and charges over HTTP."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from api_client import Api, TokenMaker
from bill_lines import cur_line, write_cur
from sqlalchemy import Engine

from core.fx import FxRate
from ingest.billing.adapter import BillOptions
from ingest.billing.delivery import Accept
from ingest.billing.importer import BillImport
from ingest.billing.layouts import find_deliveries
from ingest.billing.registry import ADAPTERS
from ingest.billing.stores import LocalFiles
from ingest.billing.switch import ImportSettings
from models.fx_repo import add_fx

pytestmark = pytest.mark.db
NOW = datetime(2026, 8, 1, tzinfo=UTC)


@pytest.fixture
def bill(db: Engine, tmp_path: Path) -> None:
    path = write_cur(
        tmp_path / "july.csv", [cur_line("Usage", {"unblended": "10"}), cur_line("Tax", {"unblended": "2"}, resource="")]
    )
    store = LocalFiles(path)
    job = ImportSettings(db, tmp_path / "data", "aws-cur", ADAPTERS["aws-cur"], BillOptions(), Accept(), NOW)
    for found in find_deliveries(store, needs_manifest=False):
        BillImport(job).run(store, found)


def test_bills_and_their_charges(api: Api, token: TokenMaker, bill: None) -> None:
    (one,) = api.get("/v1/bills", token("read")).json()["bills"]
    assert (one["source"], one["billing_period"], one["status"], one["totals"][0]["billed"]) == (
        "aws",
        "2026-07-01",
        "current",
        "12",
    )
    answer = api.get("/v1/charges", token("read"), by="bucket").json()
    assert {row["keys"]["bucket"]: row["billed_cost"] for row in answer["rows"]} == {"gpu": "10", "tax": "2"}
    narrow = api.get("/v1/charges", token("read"), by="bucket", **{"filter.bucket": "tax", "invoice_from": "2026-07"}).json()
    assert [row["billed_cost"] for row in narrow["rows"]] == ["2"]


def test_in_another_currency(api: Api, token: TokenMaker, db: Engine, bill: None) -> None:
    asked = {"by": "source", "in": "EUR"}
    without = api.get("/v1/charges", token("read"), **asked).json()
    assert [(row["currency"], row["billed_cost"]) for row in without["rows"]] == [("USD", "12")]
    assert without["missing"] == [{"base": "USD", "quote": "EUR", "day": "2026-07-01"}]
    with db.begin() as connection:
        add_fx(connection, [FxRate(date(2026, 6, 30), "EUR", "USD", Decimal("1.2"), "ECB")], NOW)
    answer = api.get("/v1/charges", token("read"), **asked).json()
    (row,) = answer["rows"]
    assert (row["currency"], row["billed_cost"], row["original"][0]["billed_cost"], row["reason"]) == ("EUR", "10", "12", "")
    assert (answer["missing"], answer["rates"]) == ([], ["1 EUR = 1.2 USD on 2026-06-30 (ECB)"])
    own = api.get("/v1/charges", token("read"), by="source", **{"in": "reporting"}).json()
    assert (own["currency"], own["rows"][0]["billed_cost"]) == ("USD", "12")


@pytest.mark.parametrize(
    ("asked", "field"),
    [({"in": "euro"}, "in"), ({"by": "colour"}, "by"), ({"invoice_from": "2026-13"}, "invoice_from"), ({"from": "July"}, "from")],
)
def test_a_wrong_question_names_the_parameter(api: Api, token: TokenMaker, asked: dict[str, str], field: str) -> None:
    answer = api.get("/v1/charges", token("read"), **asked)
    assert (answer.status_code, answer.json()["error"]["field"]) == (400, field)


def test_a_tenants_token_is_refused(api: Api, token: TokenMaker) -> None:
    assert api.get("/v1/bills", token("read", tenant="acme")).status_code == 403
    assert api.get("/v1/charges", token("read", tenant="acme")).status_code == 403
