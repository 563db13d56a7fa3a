"""``tokenfuse show bought`` with a vendor's bill: what it billed beside what lists say, and whose bill is whose."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from bought_world import pack
from sqlalchemy import Engine

from cli.main import main
from control.ledger_close import CloseSettings, close_due
from core.money import money
from core.tokens import TokenCounts
from core.usage import Deployment, TenantPath, UsageRecord
from core.vendor_list import ModelSheet, PriceEntry, Rule
from core.vendor_price import TokenPrices
from models.database import transaction
from models.partitions import ensure_months
from models.vendor_repo import add_sheets

pytestmark = pytest.mark.db
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
NOW = NOON + timedelta(hours=8)
JANUARY = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def run(db: Engine, db_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """``run("show", "bought")`` -> the rows."""
    monkeypatch.setenv("TOKENFUSE_SETTINGS", str(tmp_path / "none.toml"))

    def call(*words: str) -> Any:
        with pytest.raises(SystemExit) as ended:
            main([*words, "--json", "--db", db_url, "--data-dir", str(tmp_path / "data")])
        out, error = capsys.readouterr()
        assert not ended.value.code, error
        return json.loads(out)

    return call


def buy(db: Engine, folder: Path, *calls: tuple[str, str]) -> None:
    """A thousand input tokens of each (vendor, model), closed at 2 USD a million for ``chat``; other models have no price."""
    prices = (PriceEntry(TokenPrices("USD", Decimal(2), Decimal(8))),)
    sheets = [ModelSheet("genai-prices", vendor, "chat", (Rule("exact", "chat"),), prices, JANUARY, "list")
              for vendor in sorted({vendor for vendor, _ in calls})]  # fmt: skip
    records = [
        UsageRecord(
            request_id=f"r{n}", started_at=NOON, finished_at=NOON + timedelta(seconds=9), tenant=TenantPath("org"),
            deployment=Deployment("vendor", vendor, model), tokens=TokenCounts(1_000), provider=vendor,
            vendor_cost=money("0.003", "USD"),
        )
        for n, (vendor, model) in enumerate(calls)
    ]  # fmt: skip
    with transaction(db) as connection:
        ensure_months(connection, [NOON])
        add_sheets(connection, "genai-prices", sheets, JANUARY, "list", NOW)
    pack(db, folder, records, NOW)
    assert close_due(db, NOW, CloseSettings(silence_holds=False)).failures == []


def bill(run: Any, folder: Path, provider: str, amount: str, currency: str = "USD") -> None:
    """A bill of NOON's day for model calls, by any provider."""
    mapping, file = folder / f"{provider}.yaml", folder / f"{provider}-{currency}.csv"
    constants = f"{{provider: {provider}, family: ai_api, kind: usage, currency: {currency}}}"
    mapping.write_text(f"columns: {{billed: Net, charge_start: Day}}\nconstants: {constants}\n")
    file.write_text(f"Net,Day\n{amount},2026-11-30\n")
    run("ingest", "bill", str(file), "--format", "mapped", "--mapping", str(mapping))


def bought(run: Any) -> dict[tuple[str, str], dict[str, Any]]:
    rows = run("show", "bought", "--from", "2026-11-01T00:00:00Z", "--to", "2026-12-01T00:00:00Z")
    return {(row["vendor"], row["currency"]): row for row in rows}


def amounts(row: dict[str, Any]) -> tuple[Any, ...]:
    values = (row[name] for name in ("list_cost", "gateway_cost", "billed", "difference"))
    return tuple(None if value is None else Decimal(value) for value in values)


def openai_costs(folder: Path, *amounts: str) -> Path:
    """OpenAI's cost report of NOON's day."""
    start = int(NOON.replace(hour=0).timestamp())
    results = [{"object": "organization.costs.result", "amount": {"value": a, "currency": "usd"}, "line_item": "chat, input"}
               for a in amounts]  # fmt: skip
    bucket = {"object": "bucket", "start_time": start, "end_time": start + 86400, "results": results}
    file = folder / "costs.json"
    file.write_text(json.dumps({"object": "page", "data": [bucket], "has_more": False, "next_page": None}))
    return file


def test_the_vendors_own_report_stands_beside_the_lists(db: Engine, run: Any, tmp_path: Path) -> None:
    buy(db, tmp_path / "data", ("openai", "chat"), ("openai", "chat"))
    run("ingest", "bill", str(openai_costs(tmp_path, "0.0031", "0.0016", "-0.0005")), "--format", "openai")
    row = bought(run)["openai", "USD"]
    assert (row["month"], row["requests"], row["tokens"], row["gateway_requests"]) == ("2026-11", 2, 2_000, 2)
    assert amounts(row) == (Decimal("0.004"), Decimal("0.006"), Decimal("0.0047"), Decimal("0.0007")), "a credit is apart"


def test_tokens_without_a_price_leave_no_difference(db: Engine, run: Any, tmp_path: Path) -> None:
    buy(db, tmp_path / "data", ("openai", "chat"), ("openai", "mystery"))
    run("ingest", "bill", str(openai_costs(tmp_path, "0.0047")), "--format", "openai")
    row = bought(run)["openai", "USD"]
    assert (row["unpriced_tokens"], *amounts(row)[2:]) == (1_000, Decimal("0.0047"), None)


@pytest.mark.parametrize(
    ("bought_of", "billed_by", "found"),
    [
        (("openai",), "OpenAI", {"openai": (Decimal("0.002"), Decimal("0.0031"), Decimal("0.0011"))}),
        (("gemini",), "google", {"gemini": (Decimal("0.002"), Decimal("0.0031"), Decimal("0.0011"))}),
        (
            ("gemini", "vertex_ai"),
            "google",
            {"gemini": (Decimal("0.002"), None, None), "vertex_ai": (Decimal("0.002"), None, None),
             "google": (None, Decimal("0.0031"), None)},
        ),
        (("openai",), "acme", {"openai": (Decimal("0.002"), None, None), "acme": (None, Decimal("0.0031"), None)}),
        ((), "acme", {"acme": (None, Decimal("0.0031"), None)}),
    ],
    ids=["whatever its case", "another name", "a name that two vendors share", "nobody bought of it", "nothing bought"],
)  # fmt: skip
def test_a_bill_is_of_the_vendor_it_can_only_mean(
    db: Engine, run: Any, tmp_path: Path, bought_of: tuple[str, ...], billed_by: str, found: dict[str, Any]
) -> None:
    if bought_of:
        buy(db, tmp_path / "data", *((vendor, "chat") for vendor in bought_of))
    bill(run, tmp_path, billed_by, "0.0031")
    rows = {vendor: amounts(row) for (vendor, _), row in bought(run).items()}
    assert {vendor: (listed, billed, difference) for vendor, (listed, _, billed, difference) in rows.items()} == found


def test_another_currency_stands_by_itself(db: Engine, run: Any, tmp_path: Path) -> None:
    buy(db, tmp_path / "data", ("openai", "chat"))
    bill(run, tmp_path, "openai", "0.0031", "EUR")
    rows = bought(run)
    assert amounts(rows["openai", "USD"]) == (Decimal("0.002"), Decimal("0.003"), None, None)
    assert amounts(rows["openai", "EUR"]) == (None, None, Decimal("0.0031"), None)
