"""What engines of each model did on each GPU type, from the hourly engine sums and the inventory."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import Connection, text

from core.compare import Measured
from core.windows import Window, floor_time

HOUR = timedelta(hours=1)
_MEASURED = text("""
    WITH seen AS (
        SELECT hour, cluster, namespace, model_id, target, count(DISTINCT engine) AS engines, sum(busy_us) AS busy_us,
               sum(observed_us) AS observed_us, sum(prompt_tokens + generation_tokens) AS tokens, sum(generation_tokens) AS output
        FROM engine_hour WHERE hour >= :start AND hour < :end GROUP BY 1, 2, 3, 4, 5
    )
    SELECT e.model_id, s.gpu_type, CAST(sum(e.tokens) AS bigint) AS tokens, CAST(sum(e.output) AS bigint) AS output,
           CAST(sum(e.busy_us * s.gpu_count / e.engines) AS bigint) AS busy_gpu_us,
           CAST(sum(e.observed_us * s.gpu_count / e.engines) AS bigint) AS observed_gpu_us
    FROM seen e JOIN LATERAL (
        SELECT min(gpu_type) AS gpu_type, sum(gpu_count) AS gpu_count, count(DISTINCT gpu_type) AS types FROM node_service n
        WHERE (n.target, n.cluster, n.namespace, n.model_id) = (e.target, e.cluster, e.namespace, e.model_id)
            AND n.in_service_from < e.hour + interval '1 hour' AND (n.in_service_to IS NULL OR n.in_service_to > e.hour)
    ) s ON s.types = 1
    GROUP BY 1, 2 ORDER BY 1, 2
""")


def measured(connection: Connection, window: Window) -> list[Measured]:
    """By model and GPU type, over the whole hours ``window`` touches. Hours in which a target changed its GPU type are left out:
    its tokens cannot be told apart."""
    bounds = {"start": floor_time(window.start, HOUR), "end": floor_time(window.end - timedelta(microseconds=1), HOUR) + HOUR}
    rows = connection.execute(_MEASURED, bounds)
    return [Measured(r.model_id, r.gpu_type, r.tokens, r.output, r.busy_gpu_us, r.observed_gpu_us) for r in rows]
