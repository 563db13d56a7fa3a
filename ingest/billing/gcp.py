"""Rows of Google Cloud's billing export to BigQuery, standard or detailed, as CSV, JSON lines or Parquet.

The cost of a row is before its credits: each credit is a charge of its own, so gross, credits and net are all there.
"""

from __future__ import annotations

from ingest.billing.adapter import BillOptions, ChargePlan, ChargeSelect, Columns, RowCheck, currency_sql, time_checks
from ingest.billing.sql import gpu_sql, quoted, string, strings

DISCOUNTS = (
    "COMMITTED_USAGE_DISCOUNT", "COMMITTED_USAGE_DISCOUNT_DOLLAR_BASE", "SUSTAINED_USAGE_DISCOUNT", "DISCOUNT", "RESELLER_MARGIN",
    "SUBSCRIPTION_BENEFIT", "FEE_UTILIZATION_OFFSET",
)  # fmt: skip
"""Credit types that lower a price; any other (PROMOTION, FREE_TIER …) is a credit."""
AMOUNT = r"""["']?amount["']?\s*:\s*["']?([^,"'}\s]+)"""
OPENING, QUOTED_AFTER = r"([\[{,:]\s*)'", r'\1"'
CLOSING, QUOTED_BEFORE = r"'(\s*[,:}\]])", r'"\1'
MACHINE = "compute.googleapis.com/machine_spec"
HINT = "expected a JSON list (or Python's spelling of it) of {name, amount, type}"


class Gcp:
    source = "gcp"

    def plan(self, columns: Columns, options: BillOptions) -> ChargePlan:
        cost = columns.require("cost")
        columns.require("invoice.month", *(("invoice",) if columns.find("invoice") else ()))
        cell = columns.text("credits")
        list_cost = columns.find("cost_at_list")
        quantity = columns.find("usage.amount")
        shared = _shared(columns, options)
        usage = {
            **shared,
            "billed": "m_cost",
            "effective": "m_cost",
            "list": "m_list" if list_cost else "NULL",
            "kind": _kind(columns),
            "charge_category": f"CASE {_kind(columns)} WHEN 'tax' THEN 'Tax' WHEN 'adjustment' THEN 'Adjustment' "
            "ELSE 'Usage' END",
            "quantity": f"CASE WHEN {_kind(columns)} = 'usage' THEN n_quantity END" if quantity else "NULL",
            "unit": columns.text("usage.unit"),
        }
        amount = f"regexp_extract(credit, {string(AMOUNT)}, 1)"
        credit_type = "json_extract_string(TRY_CAST(credit AS JSON), '$.type')"
        credits = {
            **shared,
            "billed": amount,
            "effective": amount,
            "list": "0",
            "kind": f"CASE WHEN {credit_type} IN {strings(DISCOUNTS)} THEN 'discount' ELSE 'credit' END",
            "charge_category": "'Credit'",
            "description": "json_extract_string(TRY_CAST(credit AS JSON), '$.name')",
        }
        return ChargePlan(
            selects=(
                ChargeSelect(usage),
                ChargeSelect(credits, lateral=", LATERAL (SELECT unnest(d_credits) AS credit)"),
            ),
            money={"cost": cost, **({"list": list_cost} if list_cost else {})},
            numbers={"quantity": quantity} if quantity else {},
            derived={
                "credits": _objects(cell),
                "instance": _label(columns, "system_labels", MACHINE),
            },
            checks=(*_checks(columns, cell), *time_checks(columns, "usage_start_time", "usage_end_time")),
            decimals=(
                f"list_max(list_transform({_objects(cell)}, lambda o: decimals_of(regexp_extract(o, {string(AMOUNT)}, 1))))",
            ),
        )  # fmt: skip


def _checks(columns: Columns, cell: str) -> tuple[RowCheck, ...]:
    month = _text(columns, "invoice.month")
    wrong = f"list_bool_or(list_transform({_objects(cell)}, lambda o: NOT is_amount(regexp_extract(o, {string(AMOUNT)}, 1))))"
    return (
        RowCheck("m_cost IS NULL", "cost", "the cost is missing", "a charge without a cost is not zero"),
        RowCheck(f"{_invoice(columns)} IS NULL", "invoice.month", "is no month", "expected YYYYMM", month),
        RowCheck(_unread(cell), "credits", "cannot be read", HINT, cell),
        RowCheck(wrong, "credits", "has an amount that is no number", HINT, cell),
    )


def _shared(columns: Columns, options: BillOptions) -> dict[str, str]:
    zone = _text(columns, "location.zone")
    return {
        "provider": "'gcp'",
        "invoice_issuer": f"coalesce({_text(columns, 'seller_name')}, 'Google')",
        "billing_account": columns.text("billing_account_id"),
        "account": _text(columns, "project.id"),
        "billing_period": f"{_invoice(columns)}::DATE",
        "charge_start": f"at_utc({columns.text('usage_start_time')})",
        "charge_end": f"at_utc({columns.text('usage_end_time')})",
        "service": _text(columns, "service.description"),
        "region": f"coalesce({_text(columns, 'location.region')}, {_text(columns, 'location.location')})",
        "zone": zone,
        "resource_id": f"coalesce({_text(columns, 'resource.global_name')}, {_text(columns, 'resource.name')})",
        "instance_type": "d_instance",
        "sku": _text(columns, "sku.id"),
        "meter": _text(columns, "sku.description"),
        "operation": columns.text("transaction_type"),
        "description": _text(columns, "sku.description"),
        "family": _family(columns),
        "currency": currency_sql(columns.text("currency"), options),
        "tags": _labels(columns),
    }


def _text(columns: Columns, path: str) -> str:
    """A field by its path, whether the file has it as a column of its own or inside its record."""
    head, _, rest = path.partition(".")
    record = columns.find(head) if rest else None
    if record is None:
        return columns.text(path)
    inner = f"json_extract_string(TRY_CAST({quoted(record)} AS JSON), '$.{rest}')"
    return f"coalesce({columns.text(path)}, {inner})"


def _invoice(columns: Columns) -> str:
    return f"try_strptime({_text(columns, 'invoice.month')}, '%Y%m')"


def _kind(columns: Columns) -> str:
    """``rounding_error`` and ``adjustment`` have no usage behind them."""
    said = columns.text("cost_type")
    return (
        f"CASE WHEN {said} IS NULL OR {said} = 'regular' THEN 'usage' WHEN {said} = 'tax' THEN 'tax' "
        f"WHEN {said} IN ('adjustment', 'rounding_error') THEN 'adjustment' ELSE 'unknown' END"
    )


def _json(cell: str) -> str:
    """A cell as JSON text. Some tools write lists as Python does: quotes that open or close a text become JSON's."""
    opened = f"regexp_replace({cell}, {string(OPENING)}, {string(QUOTED_AFTER)}, 'g')"
    closed = f"regexp_replace({opened}, {string(CLOSING)}, {string(QUOTED_BEFORE)}, 'g')"
    words = closed
    for python, json in (("None", "null"), ("True", "true"), ("False", "false")):
        words = rf"regexp_replace({words}, ':\s*{python}(\s*[,}}])', ': {json}\1', 'g')"
    return f"CASE WHEN json_valid({cell}) THEN {cell} ELSE {words} END"


def _objects(cell: str) -> str:
    """The objects of a list, each as its text: amounts stay as they are written."""
    return rf"coalesce(regexp_extract_all({_json(cell)}, '\{{[^{{}}]*\}}'), [])"


def _unread(cell: str) -> str:
    """A list that is none, or whose objects were not all found."""
    text = _json(cell)
    return (
        f"{cell} IS NOT NULL AND CASE WHEN json_valid({text}) AND json_type({text}) = 'ARRAY' "
        f"THEN json_array_length({text}) <> len(d_credits) ELSE true END"
    )


def _label(columns: Columns, name: str, key: str) -> str:
    pairs = f"TRY_CAST(TRY_CAST({_json(columns.text(name))} AS JSON) AS JSON[])"
    found = f"list_filter({pairs}, lambda o: json_extract_string(o, '$.key') = {string(key)})"
    return f"json_extract_string({found}[1], '$.value')"


def _labels(columns: Columns) -> str:
    """Labels and tags of the resource, and its project's under ``project:KEY``, as one JSON object."""
    parts = []
    for name, prefix in (("labels", ""), ("tags", ""), ("project.labels", "project:")):
        cell = _json(_text(columns, name))
        pair = (
            f"to_json({string(prefix)} || json_extract_string(o, '$.key'))::VARCHAR || ':' "
            "|| to_json(coalesce(json_extract_string(o, '$.value'), ''))::VARCHAR"
        )
        parts.append(f"coalesce(list_transform(TRY_CAST(TRY_CAST({cell} AS JSON) AS JSON[]), lambda o: {pair}), [])")
    return f"'{{' || array_to_string(list_distinct(list_concat({', '.join(parts)})), ',') || '}}'"


def _family(columns: Columns) -> str:
    service, sku = f"lower({_text(columns, 'service.description')})", f"lower({_text(columns, 'sku.description')})"
    return (
        f"CASE WHEN {service} = 'compute engine' AND ({gpu_sql('d_instance', 'gcp')} "
        rf"OR coalesce(regexp_matches({sku}, '\bgpu\b|\btpu\b|nvidia|^a[2-9] '), false)) THEN 'gpu' "
        f"WHEN {service} = 'compute engine' AND regexp_matches({sku}, 'instance (core|ram)|instance running') THEN 'compute' "
        f"WHEN regexp_matches({service}, 'gemini|generative language') OR "
        f"({service} = 'vertex ai' AND regexp_matches({sku}, 'token|gemini|prediction input|claude')) THEN 'ai_api' "
        f"WHEN {service} IS NULL THEN 'unknown' ELSE 'other' END"
    )
