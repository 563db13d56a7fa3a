"""A deployment with eight days of steady work by two teams, five-minute windows, as rows the loader would have written."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from sqlalchemy import Engine, text

from control.rule_watch import RuleReport, watch_rules
from control.rules import set_rules
from core.rules import rule_from
from models.partitions import ensure_months

NOW = datetime(2026, 11, 27, 12, 1, tzinfo=UTC)
STEP = timedelta(minutes=5)
DEPLOYMENT = "deployment:lab/prod/tiny"
RED, BLUE = "tenant:acme/red", "tenant:acme/blue"
UNITS = {"unit": "0.0000005", "allocated_unit": "0.0000006", "input": "1", "input_cached": "0.1", "output": "10", "kv": "0",
         "capacity": "0.9"}  # fmt: skip
_USAGE = text("""
    INSERT INTO usage_minute (minute, cluster, namespace, model_id, org, team, project, user_id, key_id, service_tier, status,
        usage_source, workload_class, requests, input_uncached, output)
    SELECT at, 'lab', 'prod', 'tiny', 'acme', t, '', '', '', 'P1', 'ok', 'exact', 0, :requests,
           CAST(:input * (1 + 0.1 * sin(extract(epoch FROM at)::int / 300)) AS bigint), :output
    FROM generate_series(CAST(:start AS timestamptz), CAST(:end AS timestamptz) - interval '1 second', interval '5 minutes') at,
         unnest(CAST(:teams AS text[])) t
    ON CONFLICT (minute, cluster, namespace, model_id, org, team, project, user_id, key_id, service_tier, status, usage_source,
        workload_class) DO UPDATE SET requests = usage_minute.requests + excluded.requests,
        input_uncached = usage_minute.input_uncached + excluded.input_uncached, output = usage_minute.output + excluded.output
""")
_ENGINE = text("""
    INSERT INTO engine_minute (minute, cluster, namespace, model_id, target, engine, node, prompt_tokens, generation_tokens,
        observed_us, busy_us, kv_full_us, kv_seen_us)
    SELECT at, 'lab', 'prod', 'tiny', 't', '0', 'n', :prompt, :generation, 300000000, :busy, CAST(:kv * 300000000 AS bigint),
           300000000
    FROM generate_series(CAST(:start AS timestamptz), CAST(:end AS timestamptz) - interval '1 second', interval '5 minutes') at
""")


def use(db: Engine, start: datetime, end: datetime, *, teams: tuple[str, ...] = ("red", "blue"), requests: int = 20,
        input: int = 40_000, output: int = 4_000) -> None:  # fmt: skip
    with db.begin() as connection:
        ensure_months(connection, [start, end])
        values = {"start": start, "end": end, "teams": list(teams), "requests": requests, "input": input, "output": output}
        connection.execute(_USAGE, values)


def run_engine(db: Engine, start: datetime, end: datetime, *, busy: int = 100_000_000, kv: float = 0.3) -> None:
    with db.begin() as connection:
        values = {"start": start, "end": end, "prompt": 80_000, "generation": 8_000, "busy": busy, "kv": kv}
        connection.execute(_ENGINE, values)


def price(db: Engine, at: datetime = NOW - timedelta(days=9), capacity: str = "0.9", currency: str = "USD") -> None:
    """Unit rates of a quarter hour, as ``control.running_cost.freeze`` keeps them; the node is in service since ten days."""
    with db.begin() as connection:
        connection.execute(
            text("""INSERT INTO node_service (target, node, cluster, namespace, model_id, gpu_type, gpu_count, source,
                    in_service_from) SELECT 't', 'n', 'lab', 'prod', 'tiny', 'A10G', 1, 'test', :since
                    WHERE NOT EXISTS (SELECT 1 FROM node_service)"""),
            {"since": NOW - timedelta(days=10)},
        )
        connection.execute(
            text("""INSERT INTO running_rate (cluster, namespace, model_id, window_start, currency, source, units)
                    VALUES ('lab', 'prod', 'tiny', :at, :currency, 'unit rates (fit)', CAST(:units AS jsonb))"""),
            {"at": at, "currency": currency, "units": json.dumps({**UNITS, "capacity": capacity})},
        )


def steady(db: Engine, days: int = 8, until: datetime = NOW) -> None:
    price(db)
    start = until.replace(minute=0) - timedelta(days=days)
    use(db, start, until.replace(minute=0))
    run_engine(db, start, until.replace(minute=0))


def only(db: Engine, **fields: object) -> None:
    """One rule of the test's own, and none of those that ship."""
    watch_rules(db, NOW - timedelta(days=30))
    with db.begin() as connection:
        connection.execute(text("UPDATE rule SET retired_at = now()"))
        set_rules(connection, [rule_from({"name": "mine", "shadow": False, **fields})], "ann", NOW)


def pass_time(db: Engine, since: datetime, until: datetime) -> list[RuleReport]:
    """The loop's passes, one after each five minutes."""
    found, at = [], since
    while at <= until:
        found.append(watch_rules(db, at))
        at += STEP
    return found


def rows(db: Engine, sql: str) -> list[tuple[object, ...]]:
    with db.connect() as connection:
        return [tuple(row) for row in connection.execute(text(sql))]
