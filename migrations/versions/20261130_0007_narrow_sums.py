"""sums of usage by deployment and by team, of ledger lines by team; indexes for the newest delta file and the last unit rates

Revision ID: 0007
"""

import sqlalchemy as sa
from alembic import op

from models.base import Amount, Utc

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

DEPLOYMENT = ("cluster", "namespace", "model_id", "service_tier", "status", "usage_source", "workload_class")
TEAM = ("org", "team", "service_tier", "status", "usage_source")
MEASURES = (
    "requests", "input_uncached", "input_cache_read", "input_cache_write_5m", "input_cache_write_1h", "output",
    "output_reasoning", "prefill_context", "kv_work_x2", "duration_ms", "repeated_input", "operations", "end_unknown",
)  # fmt: skip
USAGE = (
    ("usage_deployment_hour", "hour", DEPLOYMENT, "usage_hour", "hour"),
    ("usage_deployment_day", "day", DEPLOYMENT, "usage_deployment_hour", "hour"),
    ("usage_team_hour", "hour", TEAM, "usage_hour", "hour"),
    ("usage_team_day", "day", TEAM, "usage_team_hour", "hour"),
    ("usage_team_month", "month", TEAM, "usage_team_day", "day"),
)
"""Each table, its unit and keys, and the table and time column it is summed from."""
LINE = ("org", "team", "kind", "token_kind", "currency")
SUMS = ("lines", "tokens", "requests", "cost", "allocated")
LINES_BY_HOUR = """
    INSERT INTO ledger_team_hour (hour, org, team, kind, token_kind, currency, lines, tokens, requests, cost, allocated)
    SELECT date_trunc('hour', window_start, 'UTC'), org, team, kind, token_kind, w.currency, count(*), sum(l.tokens),
           sum(l.requests), sum(l.cost), sum(l.allocated)
    FROM ledger_line l JOIN ledger_head h USING (cluster, namespace, model_id, window_start, version)
    JOIN ledger_window w USING (cluster, namespace, model_id, window_start, version) GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1
"""
RUNNING = "jsonb_typeof(detail -> 'running') = 'object'"


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("SET LOCAL statement_timeout = 0")
    for table, unit, keys, finer, time in USAGE:
        _usage_table(table, unit, keys)
        _fill(table, unit, keys, MEASURES, finer, time)
    for table, unit in (("ledger_team_hour", "hour"), ("ledger_team_day", "day"), ("ledger_team_month", "month")):
        _ledger_table(table, unit)
    op.execute(LINES_BY_HOUR)
    _fill("ledger_team_day", "day", LINE, SUMS, "ledger_team_hour", "hour")
    _fill("ledger_team_month", "month", LINE, SUMS, "ledger_team_day", "day")
    op.create_index("ix_usage_team_day_team", "usage_team_day", ["org", "team", "day"])
    op.create_index("ix_ledger_team_hour_team", "ledger_team_hour", ["org", "team", "hour"])
    op.create_index("ix_ledger_team_day_team", "ledger_team_day", ["org", "team", "day"])
    op.create_index("ix_applied_file_kind", "applied_file", ["kind", "applied_at"])
    place = ["cluster", "namespace", "model_id", "window_start", "version"]
    op.create_index("ix_ledger_window_running", "ledger_window", place, postgresql_where=sa.text(RUNNING))


def _usage_table(table: str, unit: str, keys: tuple[str, ...]) -> None:
    types = {"workload_class": sa.SmallInteger()}
    op.create_table(
        table,
        sa.Column(unit, Utc(), nullable=False),
        *(sa.Column(name, types.get(name, sa.String()), nullable=False) for name in keys),
        *(sa.Column(name, sa.BigInteger(), server_default="0", nullable=False) for name in MEASURES),
        sa.PrimaryKeyConstraint(unit, *keys, name=op.f(f"pk_{table}")),
    )


def _ledger_table(table: str, unit: str) -> None:
    op.create_table(
        table,
        sa.Column(unit, Utc(), nullable=False),
        *(sa.Column(name, sa.String(3) if name == "currency" else sa.String(), nullable=False) for name in LINE),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in SUMS[:3]),
        *(sa.Column(name, Amount(), nullable=False) for name in SUMS[3:]),
        sa.PrimaryKeyConstraint(unit, *LINE, name=op.f(f"pk_{table}")),
    )


def _fill(table: str, unit: str, keys: tuple[str, ...], sums: tuple[str, ...], finer: str, time: str) -> None:
    names = ", ".join(keys)
    op.execute(
        f"INSERT INTO {table} ({unit}, {names}, {', '.join(sums)}) "
        f"SELECT date_trunc('{unit}', {time}, 'UTC') AS at, {names}, {', '.join(f'sum({name})' for name in sums)} "
        f"FROM {finer} GROUP BY at, {names} ORDER BY at"
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_index("ix_ledger_window_running", "ledger_window")
    op.drop_index("ix_applied_file_kind", "applied_file")
    for table in ("ledger_team_month", "ledger_team_day", "ledger_team_hour"):
        op.drop_table(table)
    for table, *_ in reversed(USAGE):
        op.drop_table(table)
