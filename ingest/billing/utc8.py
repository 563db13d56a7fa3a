"""Times of Chinese clouds: local (UTC+8) without saying so. Instants become UTC; the issuer's month stays its own."""

from __future__ import annotations

from ingest.billing.adapter import RowCheck
from ingest.billing.sql import gpu_sql, string

_WITH_OFFSET = r":\d\d(\.\d+)?\s*(Z|[+-]\d\d:?\d\d)$"
DAY_OR_MONTH = "lines of days and lines of the whole month are both there: together they count twice"


def instant(text: str) -> str:
    """SQL of a UTC timestamp from a local time; one that names its offset is taken at its word."""
    at = f"coalesce(at_utc({text}), try_strptime({text}, '%Y%m%d'))"
    return f"CASE WHEN regexp_matches({text}, {string(_WITH_OFFSET)}) THEN {at} ELSE {at} - INTERVAL 8 HOUR END"


def category_sql(kind: str) -> str:
    """SQL of the FOCUS charge category of a line's kind."""
    words = "WHEN 'refund' THEN 'Credit' WHEN 'adjustment' THEN 'Adjustment' WHEN 'purchase' THEN 'Purchase' ELSE 'Usage'"
    return f"CASE {kind} {words} END"


def month(text: str) -> str:
    """SQL of the first day of the issuer's month: ``2026-07``, ``202607`` or any day of it."""
    return f"try_strptime(replace(left({text}, 7), '-', ''), '%Y%m')::DATE"


def span(begin: str, end: str, day: str, period: str) -> dict[str, str]:
    """``charge_start`` and ``charge_end`` from what a line says: times, else its day, else its month."""
    first = f"({month(period)}::TIMESTAMP - INTERVAL 8 HOUR)"
    return {
        "charge_start": f"coalesce({instant(begin)}, {instant(day)}, {first})",
        "charge_end": f"coalesce({instant(end)}, {instant(day)} + INTERVAL 1 DAY, "
        f"({month(period)} + INTERVAL 1 MONTH) - INTERVAL 8 HOUR)",
    }


def checks(cost: str, period: str, period_name: str) -> tuple[RowCheck, ...]:
    """What a line of every Chinese cloud must have."""
    return (
        RowCheck("m_billed IS NULL", cost, "the cost is missing", "a charge without a cost is not zero"),
        RowCheck(f"{month(period)} IS NULL", period_name, "is no month", "expected YYYY-MM", period),
    )


def one_granularity(day: str, period: str, name: str) -> RowCheck:
    """Daily lines of a month and its monthly lines say the same cost twice."""
    daily = f"SELECT {month(period)} FROM lines WHERE {day} IS NOT NULL"
    hint = "import the days or the month, not both"
    return RowCheck(f"{day} IS NULL AND {month(period)} IN ({daily})", name, DAY_OR_MONTH, hint, period)


def family(provider: str, machine: str, product: str, api: str) -> str:
    """SQL of the family: ``machine`` an instance type, ``product`` the names that tell the product, ``api`` an expression."""
    return (
        f"CASE WHEN {gpu_sql(machine, provider)} OR coalesce(contains(lower({product}), 'gpu'), false) THEN 'gpu' "
        f"WHEN coalesce(regexp_matches(lower({product}), {string(api)}), false) THEN 'ai_api' "
        rf"WHEN coalesce(regexp_matches(lower({product}), '\becs\b|\bcvm\b|云服务器'), false) THEN 'compute' "
        f"WHEN {product} = '' THEN 'unknown' ELSE 'other' END"
    )
