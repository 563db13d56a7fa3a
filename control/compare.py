"""Own engines or a vendor: the same tokens beside vendors' list prices, GPU types beside each other, and the field's formulas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any, Literal

from sqlalchemy import Connection

from core.bought import CLUSTER
from core.compare import BoughtMix, Comparison, Measured, OwnUse, TokenMix, bought_mix, compare, hardware_cost, verdict
from core.errors import BadInput
from core.field_estimate import LABEL, instance_second_formula, utilisation_formula
from core.money import ZERO, Money, total
from core.rates import BASIS_ORDER, Rate, rate_at
from core.vendor_book import ModelAlias, PriceBook
from core.windows import Window
from models.compare_repo import measured
from models.ledger_repo import ledger_rows, unit_cost_rows
from models.rates_repo import read_rates
from models.vendor_repo import read_aliases, read_book

By = Literal["model", "tenant"]
BY: tuple[By, ...] = ("model", "tenant")
NOT_TOLD = "nobody said with which model of a vendor it is to be compared"
HOW = "tokenfuse rates vendor alias compare OWN_MODEL VENDOR/MODEL --reason WHY, or --against VENDOR/MODEL"
US_PER_HOUR = 3_600_000_000
Key = tuple[str, ...]


@dataclass(slots=True)
class _Own:
    """Sums of one row: a model, or a tenant's use of it, in one currency."""

    allocation: list[Decimal] = field(default_factory=list)
    usage: list[Decimal] = field(default_factory=list)
    mix: TokenMix = field(default_factory=TokenMix)


def compare_with_vendors(
    connection: Connection, window: Window, *, by: By = "model", against: Sequence[tuple[str, str]] = (),
    order: Sequence[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """Rows by model, or by tenant and model, each beside every vendor's model it is compared with; ``hardware``; ``field``.

    Only closed, priced quarter hours of engines of one's own are compared. Which model compares with which is a person's word
    (aliases of use compare) or ``against``. Raises BadInput for an unknown ``by``.
    """
    if by not in BY:
        raise BadInput("unknown key", field="by", value=by, hint=f"use {', '.join(BY)}")
    own = _own(connection, window, by)
    aliases = [a for a in read_aliases(connection, "compare") if a.holds(window.end - timedelta(microseconds=1))]
    targets = {model: _targets(model, aliases, against) for model in {key[-2] for key in own}}
    vendors = {vendor for found in targets.values() for vendor, _, _ in found}
    book = read_book(connection, vendors, order) if order else read_book(connection, vendors)
    parts = _parts(connection, window, by, book) if vendors else {}
    about = {row["model_id"]: row["meta"] for row in _meta(connection, window)}
    rows: list[dict[str, Any]] = []
    for key, sums in sorted(own.items()):
        use = OwnUse(key[-1], total(sums.allocation), total(sums.usage), sums.mix, _source(about.get(key[-2])))
        for vendor, model, source in targets[key[-2]] or [("", "", "")]:
            chosen = PriceBook(book.sheets, book.aliases, (source,)) if source else book
            bought = bought_mix(parts.get(key, ()), chosen, vendor, model) if vendor else BoughtMix(None, (), NOT_TOLD, HOW)
            rows.append(_row(by, key, use, f"{vendor}/{model}" if vendor else None, bought, about.get(key[-2])))
    found, rates = measured(connection, window), read_rates(connection)
    return {
        "by": by, "window_start": window.start, "window_end": window.end, "rows": rows,
        "hardware": _hardware(found, rates, window), "field": {"label": LABEL, "rows": _field(found, rates, window)},
    }  # fmt: skip


def _own(connection: Connection, window: Window, by: By) -> dict[Key, _Own]:
    found: dict[Key, _Own] = {}
    for row in ledger_rows(connection, (*_keys(by), "cluster", "kind", "token_kind"), window):
        if row["cluster"] == CLUSTER:
            continue
        sums = found.setdefault(_key(row, by), _Own())
        sums.allocation.append(row["allocated"])
        if row["kind"] not in ("idle", "starting"):
            sums.usage.append(row["cost"])
            sums.mix += _mix(row)
    return {key: sums for key, sums in found.items() if sums.mix.total or total(sums.allocation)}


def _keys(by: By) -> tuple[str, ...]:
    return ("org", "team", "model_id") if by == "tenant" else ("model_id",)


def _key(row: Mapping[str, Any], by: By) -> Key:
    return (*(row[name] for name in _keys(by)), row["currency"])


def _mix(row: Mapping[str, Any]) -> TokenMix:
    return TokenMix(**{row["token_kind"]: row["tokens"]}) if row["token_kind"] else TokenMix()


def _targets(model: str, aliases: Sequence[ModelAlias], against: Sequence[tuple[str, str]]) -> list[tuple[str, str, str]]:
    told = [(a.list_vendor, a.list_model, a.source) for a in aliases if a.model == model]
    return list(dict.fromkeys([(vendor, name, "") for vendor, name in against] or told))


def _parts(connection: Connection, window: Window, by: By, book: PriceBook) -> dict[Key, list[tuple[datetime, TokenMix]]]:
    """Tokens by the instants at which prices were in force: the spans between changes, or quarter hours where a price has times
    of day."""
    entries = [entry for sheet in book.sheets for entry in sheet.entries]
    keys = (*_keys(by), "cluster", "token_kind")
    found: dict[Key, list[tuple[datetime, TokenMix]]] = {}
    if any(entry.day_from is not None for entry in entries):
        for row in ledger_rows(connection, ("quarter_hour", *keys), window):
            if row["cluster"] != CLUSTER:
                found.setdefault(_key(row, by), []).append((row["quarter_hour"], _mix(row)))
        return found
    changes = {sheet.valid_from for sheet in book.sheets} | {entry.starts_at for entry in entries if entry.starts_at}
    points = sorted({window.start, window.end, *(at for at in changes if window.contains(at))})
    for start, end in pairwise(points):
        for row in ledger_rows(connection, keys, Window(start, end)):
            if row["cluster"] != CLUSTER:
                found.setdefault(_key(row, by), []).append((start, _mix(row)))
    return found


def _meta(connection: Connection, window: Window) -> list[dict[str, Any]]:
    return [row for row in unit_cost_rows(connection, ("model_id", "cluster"), window, "allocation") if row["cluster"] != CLUSTER]


def _source(meta: Mapping[str, Any] | None) -> str:
    return str((meta or {}).get("utilisation_source") or "")


def _row(
    by: By, key: Key, use: OwnUse, target: str | None, bought: BoughtMix, meta: Mapping[str, Any] | None
) -> dict[str, Any]:  # fmt: skip
    found: Comparison = compare(use, bought)
    tenant = {"tenant": "/".join(part for part in key[:2] if part) or "(no tenant)"} if by == "tenant" else {}
    names = ("own_allocation", "own_usage", "bought", "times", "utilisation", "break_even")
    return {
        **tenant, "model": key[-2], "currency": use.currency, "against": target,
        "tokens": {"input": use.mix.input, "input_cached": use.mix.input_cached, "output": use.mix.output},
        "own_cost": use.allocation, "own_used_cost": use.usage, "bought_cost": bought.cost.amount if bought.cost else None,
        "bought_currency": bought.cost.currency if bought.cost else None, **{name: getattr(found, name) for name in names},
        "verdict": verdict(found), "price_list": "; ".join(bought.labels), "reasons": found.reasons, "hint": bought.hint,
        "meta": {name: (meta or {}).get(name) for name in ("price_source", "utilisation_source", "state", "coverage")},
    }  # fmt: skip


def _hardware(found: Sequence[Measured], rates: Sequence[Rate], window: Window) -> list[dict[str, Any]]:
    """Every measured model on every GPU type that has a price; only pairs that were measured have numbers."""
    at = window.end - timedelta(microseconds=1)
    by_pair = {(one.model, one.gpu_type.casefold()): one for one in found}
    types = {rate.sku.casefold(): rate.sku for rate in rates if rate.kind == "gpu_hour"}
    types |= {one.gpu_type.casefold(): one.gpu_type for one in found}
    rows: list[dict[str, Any]] = []
    for model in sorted({one.model for one in found}):
        for folded, name in sorted(types.items()):
            rate, one = gpu_price(rates, name, at), by_pair.get((model, folded))
            cost = hardware_cost(one, rate.price.amount if rate else ZERO)
            unpriced = rate is None
            rows.append({
                "model": model, "gpu_type": name, "gpu_hour": rate.price.amount if rate else None,
                "currency": rate.price.currency if rate else None,
                "price_source": f"{rate.source} ({rate.charge_basis})" if rate else None,
                "tokens_per_gpu_s": cost.tokens_per_gpu_s, "output_per_gpu_s": cost.output_per_gpu_s,
                "utilisation": cost.utilisation, "per_mtok_at_use": None if unpriced else cost.per_mtok_at_use,
                "per_mtok_full": None if unpriced else cost.per_mtok_full,
                "reason": cost.reason or ("no price of this GPU type" if unpriced else ""),
            })  # fmt: skip
    return sorted(rows, key=lambda row: (row["model"], bool(row["reason"]), row["gpu_type"]))


def gpu_price(rates: Sequence[Rate], gpu_type: str, at: datetime) -> Rate | None:
    """A GPU-hour's price in force, on the basis nearest to what is really paid."""
    found = (rate_at(rates, "gpu_hour", gpu_type, at, basis).rate for basis in BASIS_ORDER)
    return next((rate for rate in found if rate is not None), None)


def _field(found: Sequence[Measured], rates: Sequence[Rate], window: Window) -> list[dict[str, Any]]:
    """The field's two formulas on the same measurements, without power and egress (they are not in them here)."""
    rows: list[dict[str, Any]] = []
    for one in found:
        rate = gpu_price(rates, one.gpu_type, window.end - timedelta(microseconds=1))
        if rate is None or not one.observed_gpu_us:
            continue
        nothing = Money(ZERO, rate.price.currency)
        share = Decimal(one.busy_gpu_us) / one.observed_gpu_us
        hours, seconds = Decimal(one.observed_gpu_us) / US_PER_HOUR, Decimal(one.busy_gpu_us) / 1_000_000
        formulas = {
            "utilisation x node rate": utilisation_formula(
                min(share, Decimal(1)), rate.price, hours, nothing, nothing, one.tokens
            ),
            "instance seconds": instance_second_formula(rate.price, seconds, 1, nothing, one.tokens),
        }
        rows += [
            {"model": one.model, "gpu_type": one.gpu_type, "formula": name, "per_mtok": e.per_mtok.amount if e.per_mtok else None,
             "currency": rate.price.currency, "reason": e.reason, "label": e.label}
            for name, e in formulas.items()
        ]  # fmt: skip
    return rows
