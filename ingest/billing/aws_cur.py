"""AWS cost and usage: the legacy report (``lineItem/UnblendedCost``, or underscores on Athena) and CUR 2.0 (map columns)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from core.aws_cost import (
    AMOUNTS,
    OPTIONAL,
    RESERVATION_ITSELF,
    SP_REFUND_PRODUCTS,
    SP_REFUND_TEXT,
    SPLIT_OPERATIONS,
    UNUSED_RESERVATION,
    Recipe,
    Term,
    recipes,
)
from ingest.billing.adapter import (
    BillOptions,
    ChargePlan,
    ChargeSelect,
    Columns,
    RowCheck,
    currency_sql,
    json_of,
    json_text,
    time_checks,
)
from ingest.billing.sql import gpu_sql, quoted, string, strings

TIMES = ("bill/BillingPeriodStartDate", "lineItem/UsageStartDate", "lineItem/UsageEndDate")
SOURCE_COLUMNS: Mapping[str, str] = {
    "unblended": "lineItem/UnblendedCost",
    "sp_effective": "savingsPlan/SavingsPlanEffectiveCost",
    "sp_total": "savingsPlan/TotalCommitmentToDate",
    "sp_used": "savingsPlan/UsedCommitment",
    "ri_effective": "reservation/EffectiveCost",
    "ri_unused_upfront": "reservation/UnusedAmortizedUpfrontFeeForBillingPeriod",
    "ri_unused_recurring": "reservation/UnusedRecurringFee",
    "public": "pricing/publicOnDemandCost",
    "split_cost": "splitLineItem/SplitCost",
    "split_unused": "splitLineItem/UnusedCost",
}
NET_COLUMNS: Mapping[str, str] = {
    "unblended": "lineItem/NetUnblendedCost",
    "sp_effective": "savingsPlan/NetSavingsPlanEffectiveCost",
    "ri_effective": "reservation/NetEffectiveCost",
    "ri_unused_upfront": "reservation/NetUnusedAmortizedUpfrontFeeForBillingPeriod",
    "ri_unused_recurring": "reservation/NetUnusedRecurringFee",
    "split_cost": "splitLineItem/NetSplitCost",
    "split_unused": "splitLineItem/NetUnusedCost",
}
TAG_PREFIXES = ("resourceTags/", "resource_tags_")
NOT_A_MACHINE = ("ElasticMapReduce",)
"""Products that charge a fee on top of an instance and name its type."""
MACHINES = ("AmazonEC2", "AmazonSageMaker", "AmazonECS", "AmazonEKS")
INSTANCE_IN_USAGE_TYPE = r":((?:ml\.)?[a-z][a-z0-9-]*\.[a-z0-9-]+)$"


class AwsCur:
    source = "aws"

    def plan(self, columns: Columns, options: BillOptions) -> ChargePlan:
        money = self._money(columns, options)
        texts = _Texts(columns)
        return ChargePlan(
            selects=self._selects(columns, options, money, texts),
            money=money,
            numbers=_present(columns, {"usage": "lineItem/UsageAmount"}),
            derived={
                "recipe": _recipe_name(texts, options.net),
                "unused": f"coalesce(regexp_matches({texts.usage_type}, {string(UNUSED_RESERVATION)}), false)",
                "itself": f"coalesce(regexp_matches({texts.usage_type}, {string(RESERVATION_ITSELF)}), false)",
                "instance": f"coalesce({texts.instance}, "
                f"nullif(regexp_extract({texts.usage_type}, {string(INSTANCE_IN_USAGE_TYPE)}, 1), ''))",
            },
            checks=(*_checks(money, options.net), *time_checks(columns, *TIMES)),
            notes=("costs are net of private discounts",) if options.net else (),
        )

    def _money(self, columns: Columns, options: BillOptions) -> dict[str, str]:
        names = {**SOURCE_COLUMNS, **NET_COLUMNS} if options.net else SOURCE_COLUMNS
        hint = "the file has no net costs: import it without --net" if options.net else ""
        columns.require(names["unblended"], hint=hint)
        return _present(columns, names)

    def _selects(
        self, columns: Columns, options: BillOptions, money: Mapping[str, str], texts: _Texts
    ) -> tuple[ChargeSelect, ...]:
        table = recipes(net=options.net)

        def costs(of: Callable[[Recipe], tuple[Term, ...] | None]) -> str:
            return _by_recipe(table, lambda recipe: _terms_sql(of(recipe), money))

        shared = _shared(columns, options, texts)
        usage = "n_usage" if columns.find("lineItem/UsageAmount") else "NULL"
        counted = f"d_recipe IN {strings(n for n, r in table.items() if r.counts_usage)} AND NOT d_itself"
        kind = _by_recipe(table, lambda recipe: string(recipe.kind))
        whole = {
            **shared,
            "kind": f"CASE WHEN d_unused AND {kind} = 'usage' THEN 'reservation_unused' ELSE {kind} END",
            "charge_category": _by_recipe(table, lambda recipe: string(recipe.category)),
            "billed": costs(lambda r: r.billed),
            "effective": costs(lambda r: r.effective),
            "list": _by_recipe(table, lambda r: _terms_sql(r.list, money, missing_is_unknown=True)),
            "contracted": _by_recipe(table, lambda r: _terms_sql(r.contracted, money, missing_is_unknown=True)),
            "memo": costs(lambda r: r.memo),
            "quantity": f"CASE WHEN {counted} THEN {usage} END",
            "hours": f"CASE WHEN {counted} AND {_is_running(texts)} THEN {usage} END",
        }
        second = [name for name, recipe in table.items() if recipe.unused]
        unused = {
            **shared,
            "kind": "'commitment_unused'",
            "charge_category": "'Usage'",
            "billed": "0",
            "effective": costs(lambda r: r.unused),
            "list": "0",
            "contracted": "0",
        }
        # The raw type stands first: Parquet skips what cannot match, so the few fee rows cost no second pass over all.
        few = f"{quoted(columns.require('lineItem/LineItemType'))} IN {strings(second)}"
        where = f"{few} AND d_recipe IN {strings(second)} AND {unused['effective']} <> 0"
        return ChargeSelect(whole), ChargeSelect(unused, where=where)


class _Texts:
    """SQL of the text columns that decide what a line is."""

    def __init__(self, columns: Columns) -> None:
        product = columns.find("product")  # CUR 2.0: a map of what the legacy report spreads over columns
        self.line_type = f"txt({quoted(columns.require('lineItem/LineItemType'))})"
        self.usage_type = columns.text("lineItem/UsageType")
        self.operation = columns.text("lineItem/Operation")
        self.product = columns.text("lineItem/ProductCode")
        self.description = columns.text("lineItem/LineItemDescription")
        self.reservation = columns.text("reservation/ReservationARN")
        self.unit = columns.text("pricing/unit")
        self.instance = columns.text("product/instanceType")
        self.region = columns.text("product/regionCode", "product/region")
        if product is not None:
            self.instance = f"coalesce({self.instance}, json_extract_string({quoted(product)}, '$.instance_type'))"
            self.region = f"coalesce({self.region}, json_extract_string({quoted(product)}, '$.region'))"


def _present(columns: Columns, names: Mapping[str, str]) -> dict[str, str]:
    found = {alias: columns.find(name) for alias, name in names.items()}
    return {alias: name for alias, name in found.items() if name is not None}


def _recipe_name(texts: _Texts, net: bool) -> str:
    """``core.aws_cost.recipe_name`` as SQL."""
    plain = [name for name in recipes(net=net) if ":" not in name and name not in ("split", "other")]
    return (
        f"CASE WHEN {texts.operation} IN {strings(SPLIT_OPERATIONS)} THEN 'split' "
        f"WHEN {texts.line_type} = 'Fee' AND {texts.reservation} IS NOT NULL THEN 'Fee:reservation' "
        f"WHEN {texts.line_type} = 'Refund' AND {texts.product} IN {strings(SP_REFUND_PRODUCTS)} "
        f"AND starts_with({texts.description}, {string(SP_REFUND_TEXT)}) THEN 'Refund:savings_plan' "
        f"WHEN {texts.line_type} IN {strings(plain)} THEN {texts.line_type} ELSE 'other' END"
    )


def _by_recipe(table: Mapping[str, Recipe], value: Callable[[Recipe], str]) -> str:
    """One CASE over the recipes, those of one value together."""
    groups: dict[str, list[str]] = {}
    for name, recipe in table.items():
        groups.setdefault(value(recipe), []).append(name)
    cases = " ".join(f"WHEN d_recipe IN {strings(names)} THEN {sql}" for sql, names in groups.items())
    return f"CASE {cases} END"


def _terms_sql(terms: tuple[Term, ...] | None, money: Mapping[str, str], *, missing_is_unknown: bool = False) -> str:
    if terms is None:
        return "NULL"
    parts = []
    for sign, column in terms:
        amount = f"m_{column}" if column in money else "NULL"
        if not missing_is_unknown and column in OPTIONAL:
            amount = f"coalesce({amount}, 0)"
        parts.append(f"{'-' if sign < 0 else '+'} {amount}")
    return f"({' '.join(parts)})" if parts else "0"


def _checks(money: Mapping[str, str], net: bool) -> list[RowCheck]:
    """A cost that a line's type calls for and the line does not have is an error, never zero."""
    found = []
    for column in AMOUNTS:
        users = [
            name
            for name, recipe in recipes(net=net).items()
            if any(column == term for _, term in (*recipe.billed, *recipe.effective, *recipe.unused))
        ]
        if column in OPTIONAL or not users:
            continue
        absent = f"m_{column} IS NULL" if column in money else "true"
        name = NET_COLUMNS.get(column, SOURCE_COLUMNS[column]) if net else SOURCE_COLUMNS[column]
        found.append(
            RowCheck(
                bad=f"d_recipe IN {strings(users)} AND {absent}",
                field=name,
                message="a line of this type has no such cost",
                hint="include the column in the export; without it the amortised cost cannot be told",
                value="d_recipe",
            )
        )
    return found


def _is_running(texts: _Texts) -> str:
    by_unit = f"lower({texts.unit}) IN ('hrs', 'hours', 'hour', 'hr')"
    by_type = f"regexp_matches({texts.usage_type}, '(BoxUsage|SpotUsage|DedicatedUsage|UnusedBox|UnusedDed)')"
    return f"d_instance IS NOT NULL AND coalesce({by_unit}, {by_type}, false)"


def _shared(columns: Columns, options: BillOptions, texts: _Texts) -> dict[str, str]:
    currency = columns.text("lineItem/CurrencyCode")
    return {
        "provider": "'aws'",
        "invoice_issuer": columns.text("lineItem/LegalEntity", "bill/BillingEntity"),
        "billing_account": columns.text("bill/PayerAccountId"),
        "account": columns.text("lineItem/UsageAccountId"),
        "invoice_id": columns.text("bill/InvoiceId"),
        "billing_period": f"at_utc({columns.text('bill/BillingPeriodStartDate')})::DATE",
        "charge_start": f"at_utc({columns.text('lineItem/UsageStartDate')})",
        "charge_end": f"at_utc({columns.text('lineItem/UsageEndDate')})",
        "service": texts.product,
        "region": texts.region,
        "zone": columns.text("lineItem/AvailabilityZone"),
        "resource_id": columns.text("lineItem/ResourceId"),
        "parent_resource_id": columns.text("splitLineItem/ParentResourceId"),
        "capacity_reservation_id": f"CASE WHEN contains({columns.text('lineItem/ResourceId')}, 'capacity-reservation/') "
        f"THEN {columns.text('lineItem/ResourceId')} END",
        "instance_type": "d_instance",
        "sku": columns.text("product/sku"),
        "meter": texts.usage_type,
        "operation": texts.operation,
        "description": texts.description,
        "commitment_id": columns.text("savingsPlan/SavingsPlanARN", "reservation/ReservationARN"),
        "family": _family(columns, texts),
        "pricing_category": columns.text("pricing/term"),
        "currency": currency_sql(currency, options),
        "unit": texts.unit,
        "tags": _tags(columns),
    }


def _family(columns: Columns, texts: _Texts) -> str:
    name = columns.text("product/ProductName")
    return (
        f"CASE WHEN {texts.product} IN {strings(NOT_A_MACHINE)} THEN 'other' "
        f"WHEN {gpu_sql('d_instance', 'aws')} THEN 'gpu' "
        f"WHEN coalesce(contains(lower({texts.product}), 'bedrock'), false) "
        f"OR coalesce(contains(lower({name}), 'bedrock'), false) THEN 'ai_api' "
        f"WHEN {texts.product} IN {strings(MACHINES)} AND d_instance IS NOT NULL THEN 'compute' "
        f"WHEN {texts.product} IS NULL THEN 'unknown' ELSE 'other' END"
    )


def _tags(columns: Columns) -> str:
    whole = columns.find("resource_tags")
    if whole is not None:
        return json_text(f"txt({quoted(whole)})")
    return json_of(columns.starting(*TAG_PREFIXES))
