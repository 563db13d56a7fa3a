"""Model vendors' cost reports, as JSON (a page a line) or CSV of the same fields: each row a charge for tokens of a vendor's API.

Sources: OpenAI ``GET /v1/organization/costs``; Anthropic ``GET /v1/organizations/cost_report`` (amounts in cents); OpenRouter
``GET /api/v1/activity``; LiteLLM ``/spend/logs`` and ``/user/daily/activity``. Reports of tokens alone are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ingest.billing.adapter import BillOptions, ChargePlan, ChargeSelect, Columns, RowCheck
from ingest.billing.sql import quoted, string, strings

SELF_HOSTED = ("hosted_vllm", "vllm", "ollama", "ollama_chat", "xinference", "llamafile", "lm_studio")
"""LiteLLM providers whose work is our own: what the gateway writes beside them is in the ledger already."""
NO_COST = "a report of tokens has no cost: export the cost report"


@dataclass(frozen=True, slots=True)
class Report:
    """One vendor's report: spellings of its columns. ``cents``: amounts are hundredths. ``currency``: where rows name none."""

    cost: tuple[str, ...]
    begin: tuple[str, ...]
    texts: Mapping[str, tuple[str, ...]]
    end: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    unix: bool = False
    cents: bool = False
    currency: str = ""
    own: tuple[str, ...] = ()
    """Columns that name the provider, where rows may tell of our own engines."""
    notes: tuple[str, ...] = ()


REPORTS: Mapping[str, Report] = {
    "openai": Report(
        cost=("amount.value",),
        begin=("start_time",),
        end=("end_time",),
        unix=True,
        texts={
            "account": ("project_id",), "billing_account": ("organization_id",), "meter": ("line_item",),
            "description": ("line_item",), "currency": ("amount.currency",),
        },
    ),
    "anthropic": Report(
        cost=("amount",),
        begin=("starting_at",),
        end=("ending_at",),
        cents=True,
        texts={
            "account": ("workspace_id",), "sku": ("model",), "meter": ("token_type", "cost_type"),
            "description": ("description",),
            "pricing_category": ("service_tier",), "region": ("inference_geo",), "currency": ("currency",),
        },
    ),
    "openrouter": Report(
        cost=("usage",),
        begin=("date",),
        tokens=("prompt_tokens", "completion_tokens"),
        currency="USD",
        texts={
            "account": ("workspace_id",), "sku": ("model_permaslug", "model"), "meter": ("model",),
            "description": ("provider_name",), "resource_id": ("endpoint_id",),
        },
        notes=("what ran on keys of your own (byok_usage_inference) is on its vendor's bill, not on this one",),
    ),
    "litellm": Report(
        cost=("spend", "metrics.spend"),
        begin=("startTime", "date"),
        end=("endTime",),
        tokens=("total_tokens",),
        currency="USD",
        own=("custom_llm_provider",),
        texts={
            "account": ("team_id",), "sku": ("model",), "meter": ("model_group", "model"), "operation": ("call_type",),
            "description": ("custom_llm_provider",), "resource_id": ("model_id",),
        },
        notes=("spend as the gateway priced it, not an invoice",),
    ),
}  # fmt: skip


class VendorReport:
    def __init__(self, vendor: str) -> None:
        self.source = vendor
        self.report = REPORTS[vendor]

    def plan(self, columns: Columns, options: BillOptions) -> ChargePlan:
        report = self.report
        cost = columns.require(*report.cost, hint=NO_COST)
        begin = columns.require(*report.begin)
        tokens = {f"tokens{n}": found for n, name in enumerate(report.tokens) if (found := columns.find(name)) is not None}
        charge = self._columns(columns, options, tokens)
        own = f"coalesce({columns.text(*report.own)} IN {strings(SELF_HOSTED)}, false)" if report.own else "false"
        memo = {**charge, "billed": "0", "effective": "0", "memo": "d_cost", "kind": "'split'", "quantity": "NULL"}
        return ChargePlan(
            selects=(ChargeSelect(charge, where=f"NOT {own}"), ChargeSelect(memo, where=own))
            if report.own
            else (ChargeSelect(charge),),
            money={"cost": cost},
            numbers=tokens,
            derived={
                "cost": "m_cost * 0.01::DECIMAL(2, 2)" if report.cents else "m_cost",
                "begin": self._time(columns, report.begin),
            },
            checks=(
                RowCheck("m_cost IS NULL", report.cost[0], "the cost is missing", "a charge without a cost is not zero"),
                RowCheck("d_begin IS NULL", begin, "is no time that can be read", "", quoted(begin)),
            ),
            notes=report.notes,
            decimals=(f"decimals_of(txt({quoted(cost)})) + 2",) if report.cents else (),
        )

    def _columns(self, columns: Columns, options: BillOptions, tokens: Mapping[str, str]) -> dict[str, str]:
        report = self.report
        said = {name: columns.text(*spellings) for name, spellings in report.texts.items()}
        fallback = options.currency or report.currency
        currency = f"coalesce(upper({said.get('currency', 'NULL::VARCHAR')}), {string(fallback) if fallback else 'NULL'})"
        end = (
            f"coalesce({self._time(columns, report.end)}, d_begin + INTERVAL 1 DAY)" if report.end else "d_begin + INTERVAL 1 DAY"
        )
        return {
            **said,
            "provider": string(self.source),
            "invoice_issuer": string(self.source),
            "billing_period": "date_trunc('month', d_begin)::DATE",
            "charge_start": "d_begin",
            "charge_end": end,
            "service": string(self.source),
            "kind": "CASE WHEN d_cost < 0 THEN 'credit' ELSE 'usage' END",
            "charge_category": "CASE WHEN d_cost < 0 THEN 'Credit' ELSE 'Usage' END",
            "family": "'ai_api'",
            "currency": currency,
            "billed": "d_cost",
            "effective": "d_cost",
            "quantity": " + ".join(f"n_{alias}" for alias in tokens) if len(tokens) == len(report.tokens) > 0 else "NULL",
            "unit": "'Tokens'" if tokens else "NULL",
        }

    def _time(self, columns: Columns, spellings: tuple[str, ...]) -> str:
        cell = columns.text(*spellings)
        if not self.report.unix:
            return f"at_utc({cell})"
        return f"coalesce(timezone('UTC', to_timestamp(TRY_CAST({cell} AS BIGINT))), at_utc({cell}))"
