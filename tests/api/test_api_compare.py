"""Own or bought, and tokens without a price, over HTTP and on the command line's own function."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from api_client import Api, TokenMaker
from api_world import DAY, T0, settle
from sqlalchemy import Engine

from core.vendor_book import ModelAlias
from core.vendor_list import ModelSheet, PriceEntry, Rule
from core.vendor_price import TokenPrices
from models.vendor_repo import add_alias, add_sheets

pytestmark = pytest.mark.db
NOW = T0 + timedelta(hours=1)
JANUARY = datetime(2026, 1, 1, tzinfo=UTC)


def lists(db: Engine) -> None:
    """acme/small at 200 and 800 USD a million, from January on."""
    entry = PriceEntry(TokenPrices("USD", Decimal(200), Decimal(800)))
    sheet = ModelSheet("genai-prices", "acme", "small", (Rule("exact", "small"),), (entry,), JANUARY, "genai-prices 2026-01-01")
    with db.begin() as connection:
        add_sheets(connection, "genai-prices", [sheet], JANUARY, "genai-prices 2026-01-01", NOW)


def compared(api: Api, token: TokenMaker, **more: str) -> Mapping[str, Any]:
    answer = api.get("/v1/compare", token("read"), **DAY, **more)
    assert answer.status_code == 200, answer.text
    found: Mapping[str, Any] = answer.json()
    return found


def test_own_cost_beside_the_same_tokens_bought(db: Engine, api: Api, token: TokenMaker) -> None:
    settle(db, NOW)
    lists(db)
    (row,) = compared(api, token, against="acme/small")["rows"]
    tokens = row["tokens"]
    assert tokens["input"] + tokens["output"] == 110 * 15 + 10 * 15
    cost = (Decimal(tokens["input"]) * 200 + Decimal(tokens["output"]) * 800) / 1_000_000
    assert (Decimal(row["bought_cost"]), row["own_cost"], row["own_used_cost"]) == (cost, "0.7545", "0.12575")
    assert (row["against"], row["utilisation"]) == ("acme/small", "0.1667")
    assert Decimal(row["break_even"]) == (Decimal("0.12575") / cost).quantize(Decimal("0.0001"))
    assert row["verdict"] == "bought is cheaper at this use"
    assert row["price_list"] == "genai-prices 2026-01-01 acme/small"
    assert "share of time with running > 0" in row["meta"]["utilisation_source"]


def test_tenants_add_up_to_the_model(db: Engine, api: Api, token: TokenMaker) -> None:
    settle(db, NOW)
    lists(db)
    (whole,) = compared(api, token, against="acme/small")["rows"]
    parts = compared(api, token, against="acme/small", by="tenant")["rows"]
    assert {row["tenant"] for row in parts} >= {"acme/search", "acme/ads"}
    for name in ("own_cost", "own_used_cost", "bought_cost"):
        assert sum(Decimal(row[name] or 0) for row in parts) == Decimal(whole[name]), name


def test_which_model_compares_is_a_persons_word(db: Engine, api: Api, token: TokenMaker) -> None:
    settle(db, NOW)
    lists(db)
    (row,) = compared(api, token)["rows"]
    assert (row["against"], row["bought"], row["own_allocation"] is None) == (None, None, False)
    assert row["reasons"]["bought"] == "nobody said with which model of a vendor it is to be compared"
    with db.begin() as connection:
        add_alias(connection, ModelAlias("compare", "", "tiny", "acme", "small", "", JANUARY, None, "kim", "same class"), NOW)
    (row,) = compared(api, token)["rows"]
    assert (row["against"], row["bought"] is None) == ("acme/small", False)


def test_only_measured_hardware_has_numbers(db: Engine, api: Api, token: TokenMaker) -> None:
    settle(db, NOW)
    found = compared(api, token)
    rows = {row["gpu_type"]: row for row in found["hardware"]}
    assert Decimal(rows["A10G"]["tokens_per_gpu_s"]) == 4
    assert (rows["A10G"]["utilisation"], rows["A10G"]["reason"]) == ("0.5", "")
    assert Decimal(rows["A10G"]["per_mtok_at_use"]) == (2 * Decimal(rows["A10G"]["per_mtok_full"])).quantize(Decimal("1e-12"))
    others = [row for name, row in rows.items() if name != "A10G"]
    assert all((row["tokens_per_gpu_s"], row["reason"]) == (None, "not measured here") for row in others)
    assert {row["label"] for row in found["field"]["rows"]} == {"field estimate, not ledger"}


def test_an_empty_ledger_has_nothing_to_compare_and_no_hole(api: Api, token: TokenMaker) -> None:
    found = compared(api, token, against="acme/small")
    assert (found["rows"], found["hardware"], found["field"]["rows"]) == ([], [], [])
    answer = api.get("/v1/unpriced", token("read"), **DAY).json()
    assert (answer["rows"], answer["tokens"]) == ([], 0)


@pytest.mark.parametrize(
    ("asked", "field"),
    [({"against": "small"}, "against"), ({"by": "colour"}, "by"), ({"against": ",".join(["a/b"] * 11)}, "against")],
)
def test_a_wrong_question_names_the_parameter(api: Api, token: TokenMaker, asked: dict[str, str], field: str) -> None:
    answer = api.get("/v1/compare", token("read"), **DAY, **asked)
    assert (answer.status_code, answer.json()["error"]["field"]) == (400, field)


@pytest.mark.parametrize("path", ["/v1/compare", "/v1/unpriced"])
def test_a_tenants_token_is_refused(api: Api, token: TokenMaker, path: str) -> None:
    assert api.get(path, token("read", tenant="acme"), **DAY).status_code == 403
