"""Model vendors' cost reports by their documented shapes: exact, in the vendor's unit, and vendor API money all of it."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from bill_takes import Takes
from sqlalchemy import Engine

from core.errors import BadInput

pytestmark = pytest.mark.db
DAY = 1782864000  # 2026-07-01T00:00:00Z


@pytest.fixture
def takes(db: Engine, tmp_path: Path) -> Any:
    return lambda format: Takes(db, tmp_path, format)


def openai(*amounts: Any, more: bool = False) -> dict[str, Any]:
    results = [
        {"object": "organization.costs.result", "amount": {"value": amount, "currency": "usd"}, "line_item": "gpt-5, input",
         "project_id": "proj_1"}
        for amount in amounts
    ]  # fmt: skip
    bucket = {"object": "bucket", "start_time": DAY, "end_time": DAY + 86400, "results": results}
    empty = {"object": "bucket", "start_time": DAY + 86400, "end_time": DAY + 172800, "results": []}
    return {"object": "page", "data": [bucket, empty], "has_more": more, "next_page": "page_2" if more else None}


def anthropic(*amounts: Any) -> dict[str, Any]:
    rows = [
        {"currency": "USD", "amount": amount, "workspace_id": "w1", "model": "claude", "token_type": "output_tokens"}
        for amount in amounts
    ]
    bucket = {"starting_at": "2026-07-01T00:00:00Z", "ending_at": "2026-07-02T00:00:00Z", "results": rows}
    return {"data": [bucket], "has_more": False, "next_page": None}


def activity(usage: Any) -> dict[str, Any]:
    return {
        "date": "2026-07-31", "model": "openai/gpt-5", "model_permaslug": "openai/gpt-5-2026", "provider_name": "OpenAI",
        "usage": usage,
        "byok_usage_inference": 7, "requests": 5, "prompt_tokens": 50, "completion_tokens": 125, "reasoning_tokens": 25,
    }  # fmt: skip


def spend(amount: Any, provider: str) -> dict[str, Any]:
    return {
        "request_id": "r", "startTime": "2026-07-03T10:00:00Z", "endTime": "2026-07-03T10:00:09Z", "spend": amount, "model": "m",
        "custom_llm_provider": provider, "total_tokens": 100, "team_id": "t1",
    }  # fmt: skip


def test_openai_costs_by_bucket(takes: Any) -> None:
    bills = takes("openai")
    (bill,) = bills.documents([openai(0.06, "0.0000001234567890123456789"), openai(-0.5)])
    assert (str(bill.billing_period), bill.rows, bill.totals[0]["currency"]) == ("2026-07-01", 3, "USD")
    assert bills.by("bucket", "day", "account") == {
        ("vendor_api", "2026-07-01", "proj_1"): Decimal("0.0600001234567890123456789"),
        ("credit", "2026-07-01", "proj_1"): Decimal("-0.5"),
    }


def test_anthropic_amounts_are_cents(takes: Any) -> None:
    bills = takes("anthropic")
    bills.documents([anthropic("123.45", "0.0000007")])
    assert bills.by("bucket") == {"vendor_api": Decimal("1.234500007")}


def test_openrouter_activity_counts_its_own_bill_alone(takes: Any) -> None:
    bills = takes("openrouter")
    (bill,) = bills.documents([{"data": [activity(0.015), activity(1e-07)]}])
    (row,) = bills.charges("bucket", "sku", "day", "unit")
    assert (row["bucket"], row["billed_cost"], row["unit"]) == (
        "vendor_api",
        Decimal("0.0150001"),
        "Tokens",
    )
    assert "byok" in bill.notes[0]


def test_litellm_spend_on_our_own_engines_is_in_no_sum(takes: Any) -> None:
    bills = takes("litellm")
    bills.documents([spend(1.2e-05, "openai"), spend("4", "hosted_vllm")])
    rows = {row["bucket"]: (row["billed_cost"], row["memo_cost"]) for row in bills.charges("bucket")}
    assert rows == {"vendor_api": (Decimal("0.000012"), 0), "split_memo": (0, 4)}


def test_litellm_daily_activity(takes: Any) -> None:
    bills = takes("litellm")
    day = {
        "date": "2026-07-03",
        "metrics": {"spend": 0.25, "total_tokens": 9},
        "breakdown": {"models": {"m": {"metrics": {"spend": 0.25}}}},
    }
    bills.documents([{"results": [day], "metadata": {"total_spend": 0.25, "page": 1, "has_more": False}}])
    assert bills.by("day") == {"2026-07-03": Decimal("0.25")}


@pytest.mark.parametrize(
    ("format", "document", "said"),
    [
        ("openai", openai(1, "many"), r"bill\.jsonl row 2: amount\.value.*'many'"),
        ("openai", openai(1, None), r"row 2: amount\.value.*missing"),
        ("openai", openai(1, more=True), r"has_more.*before its last page"),
        ("litellm", {"results": [], "metadata": {"has_more": True}}, r"has_more.*before its last page"),
        ("openrouter", {"data": [{**activity(1), "date": "July"}]}, r"row 1: date.*'July'"),
        (
            "anthropic",
            {"data": [{"starting_at": "2026-07-01T00:00:00Z", "results": [{"uncached_input_tokens": 5}]}], "has_more": False},
            r"amount.*no such column.*export the cost report",
        ),
    ],
)
def test_f7_a_refusal_names_row_column_and_value(takes: Any, format: str, document: Any, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        takes(format).documents([document])
