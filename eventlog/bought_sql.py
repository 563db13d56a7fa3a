"""Bought requests of an hour from the raw archive: a DuckDB query that gives what ``core.bought.bought_sums`` gives."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from pathlib import Path

from core.bought import CLUSTER, BoughtKey, BoughtSum
from core.money import ZERO
from core.tokens import TOKEN_FIELDS, TokenSums
from core.usage import Deployment
from core.vendor_list import CLASS_EDGES, prompt_class, sold_as
from core.windows import epoch_ms, from_epoch_ms
from eventlog.archive_sql import query_archive
from eventlog.feature_sql import COPIES_MS

HOUR_MS = 3_600_000
_QUARTER_MS = 900_000
_TOKENS = ", ".join(TOKEN_FIELDS)
_SUMS = ", ".join(f"sum({name})::BIGINT" for name in TOKEN_FIELDS)
_KEYS = "namespace, model_id, org, team, project, user_id, key_id, service_tier, status, usage_source"
_CLASS = " ".join(f"WHEN prompt > {edge} THEN {edge}" for edge in sorted(CLASS_EDGES, reverse=True))


def _bought(value: str) -> str:
    """Of records of bought requests alone: other records are not parsed."""
    return f"CASE WHEN cluster = '{CLUSTER}' THEN {value} END"


def _said(path: str) -> str:
    return f"CASE WHEN json_type(record, '{path}') = 'VARCHAR' THEN nullif(json_extract_string(record, '{path}'), '') END"


_SQL = f"""
WITH raw AS (
  SELECT request_id, segment, line_no, finished_ms, cluster, {_KEYS}, {_TOKENS},
         input_uncached + input_cache_read + input_cache_write_5m + input_cache_write_1h AS prompt,
         {_bought(f"coalesce({_said('$.raw.service_tier')}, {_said('$.raw.litellm.service_tier')})")} AS sold,
         {_bought("CAST(json_extract_string(record, '$.vendor_cost.amount') AS DECIMAL(38, 20))")} AS cost,
         {_bought("json_extract_string(record, '$.vendor_cost.currency')")} AS currency
  FROM {{read}} WHERE finished_ms >= $since AND finished_ms < $until),
one AS (SELECT * FROM raw
        QUALIFY row_number() OVER (PARTITION BY request_id ORDER BY substr(segment, 10), segment, line_no) = 1)
SELECT finished_ms // {_QUARTER_MS} * {_QUARTER_MS} AS start_ms, {_KEYS}, coalesce(sold, ''), CASE {_CLASS} ELSE 0 END AS above,
       coalesce(currency, ''), count(*), {_SUMS}, coalesce(sum(cost), 0), count(cost)
FROM one WHERE cluster = '{CLUSTER}' AND finished_ms >= $start AND finished_ms < $end GROUP BY ALL ORDER BY ALL
"""


def archived_bought(data_dir: Path, hour: datetime) -> dict[tuple[Deployment, datetime], dict[BoughtKey, BoughtSum]]:
    """``core.bought.bought_sums`` of the archived requests that finished in the hour that starts at ``hour``."""
    start = epoch_ms(hour)
    times = {"start": start, "end": start + HOUR_MS, "since": start - COPIES_MS, "until": start + HOUR_MS + COPIES_MS}
    first, last = (from_epoch_ms(times[name]).date() for name in ("since", "until"))
    found: defaultdict[tuple[Deployment, datetime], dict[BoughtKey, BoughtSum]] = defaultdict(dict)
    for start_ms, vendor, model, *rest in query_archive(data_dir, "usage", _SQL, times, first, last):
        tenant, (word, above, currency, requests), sums = rest[:8], rest[8:12], rest[12:]
        upto = prompt_class(above + 1).upto
        key = BoughtKey._make((*tenant, sold_as(word), above, upto, currency))
        place = Deployment(CLUSTER, vendor, model), from_epoch_ms(start_ms)
        one = BoughtSum(key, requests, TokenSums(*sums[:6]), sums[6].normalize() if sums[6] else ZERO, sums[7])
        former = found[place].get(key)
        found[place][key] = one if former is None else _both(former, one)
    return dict(found)


def _both(a: BoughtSum, b: BoughtSum) -> BoughtSum:
    """Two words for one way of selling ("default", "standard")."""
    cost = a.gateway_cost + b.gateway_cost
    return BoughtSum(a.key, a.requests + b.requests, a.tokens + b.tokens, cost, a.gateway_priced + b.gateway_priced)
