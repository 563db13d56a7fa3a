"""rules, what they measured, alerts, and the prices they decide by

Revision ID: 0024
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

from models.base import Amount, Utc

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def _text(*names: str) -> list[sa.Column]:
    return [sa.Column(name, sa.String(), nullable=False) for name in names]


def _time(name: str, *, optional: bool = False) -> sa.Column:
    return sa.Column(name, Utc(), nullable=optional)


def upgrade() -> None:
    op.create_table(
        "rule",
        *_text("name"),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("body", JSONB(), nullable=False),
        *_text("made_by"),
        _time("made_at"),
        _time("retired_at", optional=True),
        sa.PrimaryKeyConstraint("name", "version", name=op.f("pk_rule")),
    )
    op.create_index("uq_rule_in_force", "rule", ["name"], unique=True, postgresql_where=sa.text("retired_at IS NULL"))
    op.create_table(
        "rule_state",
        *_text("rule", "scope", "basis"),
        sa.Column("baseline", JSONB(), nullable=False),
        _time("baseline_at"),
        sa.Column("firing", sa.Boolean(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        *[_time(n, optional=True) for n in ("window_end", "since", "firing_since", "clear_since", "no_data_since")],
        sa.Column("verdict", JSONB(), nullable=False),
        *_text("shown"),
        sa.PrimaryKeyConstraint("rule", "scope", name=op.f("pk_rule_state")),
    )
    op.create_table(
        "decision_price",
        *_text("cluster", "namespace", "model_id"),
        _time("since"),
        _time("ended_at", optional=True),
        *_text("key"),
        sa.Column("currency", sa.String(3), nullable=False),
        *_text("source"),
        sa.Column("targets", sa.Integer(), nullable=False),
        sa.Column("units", JSONB(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "namespace", "model_id", "since", name=op.f("pk_decision_price")),
    )
    _alerts()


def _alerts() -> None:
    op.create_table(
        "alert",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        *_text("rule", "scope"),
        sa.Column("epoch", sa.Integer(), nullable=False),
        *_text("severity"),
        sa.Column("tier", sa.Integer(), nullable=False),
        sa.Column("shadow", sa.Boolean(), nullable=False),
        _time("window_start"),
        _time("fired_at"),
        _time("recovered_at", optional=True),
        sa.Column("value", sa.Float(), nullable=False),
        sa.Column("threshold", sa.Float(), nullable=False),
        sa.Column("usual", sa.Float(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at_risk", Amount(), nullable=True),
        *_text("currency"),
        sa.Column("why", JSONB(), nullable=False),
        sa.Column("person", sa.String(), server_default="", nullable=False),
        sa.Column("person_said", sa.String(), server_default="", nullable=False),
        sa.Column("person_reason", sa.Text(), server_default="", nullable=False),
        _time("person_at", optional=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alert")),
        sa.UniqueConstraint("rule", "scope", "epoch", name=op.f("uq_alert_rule_scope_epoch")),
    )
    op.create_index("ix_alert_fired_at", "alert", ["fired_at"])


def downgrade() -> None:
    for table in ("alert", "decision_price", "rule_state", "rule"):
        op.drop_table(table)
