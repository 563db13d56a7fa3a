"""Bought tokens by vendor and month: what lists say, what the gateway said, and what the vendor billed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from sqlalchemy import Connection, text

from core.money import ZERO
from core.vendor_list import vendor_names
from core.windows import Window

_LEDGER = text("""
    SELECT x.namespace AS vendor, CAST(date_trunc('month', x.window_start, 'UTC') AS date) AS month, w.currency,
           CAST(sum(x.tokens) AS bigint) AS tokens, CAST(sum(x.requests) AS bigint) AS requests, sum(x.cost) AS cost
    FROM ledger_line x JOIN ledger_head h USING (cluster, namespace, model_id, window_start, version)
    JOIN ledger_window w USING (cluster, namespace, model_id, window_start, version)
    WHERE x.cluster = 'vendor' AND x.window_start >= :start AND x.window_start < :end GROUP BY 1, 2, 3
""")
_HOLES = text("""
    SELECT namespace AS vendor, CAST(date_trunc('month', window_start, 'UTC') AS date) AS month,
           CAST(sum(input_uncached + input_cache_read + input_cache_write_5m + input_cache_write_1h + output) AS bigint) AS tokens
    FROM bought_hole WHERE window_start >= :start AND window_start < :end GROUP BY 1, 2
""")
_GATEWAY = text("""
    SELECT namespace AS vendor, CAST(date_trunc('month', window_start, 'UTC') AS date) AS month, gateway_currency AS currency,
           sum(gateway_cost) AS cost, CAST(sum(gateway_priced) AS bigint) AS requests
    FROM bought_usage WHERE gateway_priced > 0 AND window_start >= :start AND window_start < :end GROUP BY 1, 2, 3
""")
_BILLED = text("""
    SELECT lower(c.provider) AS vendor, CAST(date_trunc('month', c.day) AS date) AS month, c.currency, sum(c.billed) AS cost
    FROM charge_day c JOIN bill_delivery d ON d.id = c.delivery
    WHERE d.status = 'current' AND c.bucket = 'vendor_api' AND c.day >= CAST(:start AS date) AND c.day < CAST(:end AS date)
    GROUP BY 1, 2, 3
""")


@dataclass(slots=True)
class BoughtMonth:
    """One vendor, month and currency. None: nobody said it. ``difference`` is billed less the lists' cost, where no token of the
    month is without a price."""

    vendor: str
    month: date
    currency: str
    requests: int = 0
    tokens: int = 0
    unpriced_tokens: int = 0
    list_cost: Decimal | None = None
    gateway_cost: Decimal | None = None
    gateway_requests: int = 0
    billed: Decimal | None = None

    @property
    def difference(self) -> Decimal | None:
        if self.billed is None or self.list_cost is None or self.unpriced_tokens:
            return None
        return self.billed - self.list_cost


def bought_months(connection: Connection, window: Window) -> list[BoughtMonth]:
    """By vendor, UTC month and currency, over quarter hours that start in ``window`` and whole UTC days of bills in it. A bill's
    provider is a vendor by any of its names; one of whom nothing was bought, or whose name several bought vendors share, stands
    by itself."""
    bounds = {"start": window.start, "end": window.end}
    found: dict[tuple[str, date, str], BoughtMonth] = {}

    def at(vendor: str, month: date, currency: str) -> BoughtMonth:
        return found.setdefault((vendor, month, currency), BoughtMonth(vendor, month, currency))

    for row in connection.execute(_LEDGER, bounds):
        one = at(row.vendor, row.month, row.currency)
        one.tokens, one.requests, one.list_cost = row.tokens, row.requests, row.cost
    for row in connection.execute(_GATEWAY, bounds):
        one = at(row.vendor, row.month, row.currency)
        one.gateway_cost, one.gateway_requests = row.cost, row.requests
    holes = {(row.vendor, row.month): row.tokens for row in connection.execute(_HOLES, bounds)}
    names = _issuers({vendor for vendor, _, _ in found} | {vendor for vendor, _ in holes})
    for row in connection.execute(_BILLED, bounds):
        one = at(names.get(row.vendor, row.vendor), row.month, row.currency)
        one.billed = (one.billed or ZERO) + row.cost
    for one in found.values():
        one.unpriced_tokens = holes.get((one.vendor, one.month), 0)
    for vendor, month in set(holes) - {(one.vendor, one.month) for one in found.values()}:
        at(vendor, month, "").unpriced_tokens = holes[vendor, month]
    return sorted(found.values(), key=lambda one: (one.month, one.vendor, one.currency))


def _issuers(bought: Collection[str]) -> Mapping[str, str]:
    """Name on a bill -> the bought vendor it can only be: its own name, else another name of exactly one of them."""
    others = [(name, vendor) for vendor in bought for name in vendor_names(vendor) if name not in bought]
    shared = {name for name, _ in others if len({vendor for other, vendor in others if other == name}) > 1}
    return {vendor: vendor for vendor in bought} | {name: vendor for name, vendor in others if name not in shared}
