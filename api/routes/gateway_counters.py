"""The token counters gateways and SDKs sent over OTLP, compared with the usage records."""

from __future__ import annotations

from typing import Any

from api.deps import CallerDep, ConnectionDep, PartsDep, router
from api.query import DayWindow, RowsDep
from api.routes.ledger import window_meta
from api.routes.usage import whole_minutes
from api.schemas.gateway_counters import GatewayCountersOut
from api.tenancy import require_all_tenants
from ingest.otlp.conventions import conventions
from models.gateway_counter_repo import CounterSum, counter_sums
from models.quality_repo import freshness
from models.usage_repo import usage_rows

routes = router("read", tags=["usage"])
PLACE = ("cluster", "namespace", "model_id")
INPUTS = ("input_uncached", "input_cache_read", "input_cache_write_5m", "input_cache_write_1h")


@routes.get("/v1/gateway-counters", response_model=GatewayCountersOut)
def gateway_counters(
    parts: PartsDep, caller: CallerDep, connection: ConnectionDep, window: DayWindow, rows: RowsDep
) -> dict[str, Any]:
    """Tokens by source and deployment as its own metrics counted them, against the usage records. A cross-check: a lasting
    difference means that one of the two misses calls. Money rests on the records alone."""
    require_all_tenants(caller, "what a gateway counted")
    whole_minutes(window)
    usage = usage_rows(connection, PLACE, window, {}, zone_name=parts.settings.zone)
    recorded = {
        tuple(row[key] for key in PLACE): (sum(row[name] for name in INPUTS), row["output"]) for row in usage
    }  # fmt: skip
    found = [_row(one, recorded) for one in counter_sums(connection, window, tuple(conventions().metrics))]
    meta = window_meta(window) | {"freshness": freshness(connection)}
    return {"rows": rows.of(found), "total_rows": len(found), "meta": meta}


def _row(one: CounterSum, recorded: dict[tuple[Any, ...], tuple[int, int]]) -> dict[str, Any]:
    known_input, known_output = recorded.get((one.cluster, one.namespace, one.model_id), (0, 0))
    return {
        "source": one.source, "metric": one.metric, "cluster": one.cluster, "namespace": one.namespace, "model_id": one.model_id,
        "counted": {
            "input": one.input_tokens, "output": one.output_tokens, "cached_input": one.cached_input_tokens,
            "cache_creation_input": one.cache_creation_input_tokens, "reasoning": one.reasoning_tokens,
        },
        "recorded": {"input": known_input, "output": known_output},
        "difference": {
            "input": None if one.input_tokens is None else one.input_tokens - known_input,
            "output": None if one.output_tokens is None else one.output_tokens - known_output,
        },
    }  # fmt: skip
