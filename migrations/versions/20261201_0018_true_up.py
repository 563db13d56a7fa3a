"""bills price the ledger: true-ups beside decisions' money, closed periods, shared costs

Revision ID: 0018
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from models.base import Amount, Utc

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

SUMS = (
    "ledger_line",
    "ledger_day",
    "ledger_line_day",
    "ledger_line_month",
    "ledger_kind_day",
    "ledger_kind_hour",
    "ledger_team_day",
    "ledger_team_hour",
    "ledger_team_month",
)
TRUEUP = ("trueup_cost", "trueup_allocated")


def upgrade() -> None:
    for table in SUMS:
        for name in TRUEUP:
            op.add_column(table, sa.Column(name, Amount(), server_default="0", nullable=False))
    op.add_column("ledger_window", sa.Column("charged_cost", Amount(), nullable=True))
    op.add_column("ledger_window", sa.Column("estimate_cost", Amount(), nullable=True))
    op.create_index("ix_ledger_window_closed", "ledger_window", ["closed_at"], postgresql_using="brin")
    op.create_table(
        "ledger_period",
        sa.Column("period", sa.Date(), nullable=False),
        sa.Column("window_start", Utc(), nullable=False),
        sa.Column("window_end", Utc(), nullable=False),
        sa.Column("closed_at", Utc(), nullable=False),
        sa.Column("closed_by", sa.String(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("totals", postgresql.JSONB(), nullable=False),
        sa.PrimaryKeyConstraint("period", name=op.f("pk_ledger_period")),
    )
    op.create_table(
        "period_version",
        sa.Column("period", sa.Date(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("at", Utc(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("period", "version", name=op.f("pk_period_version")),
    )
    _period_line()
    _shared_rule()


def _period_line() -> None:
    names = ("kind", "name", "cluster", "namespace", "model_id", "org", "team", "currency")
    op.create_table(
        "period_line",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("period", sa.Date(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        *(sa.Column(name, sa.String(), nullable=False) for name in names),
        sa.Column("amount", sa.Numeric(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_period_line")),
    )
    op.create_index("ix_period_line_version", "period_line", ["period", "version"])


def _shared_rule() -> None:
    op.create_table(
        "shared_rule",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("selector", postgresql.JSONB(), nullable=False),
        sa.Column("method", sa.String(), nullable=False),
        sa.Column("target", sa.String(), nullable=False),
        sa.Column("shares", postgresql.JSONB(), nullable=False),
        sa.Column("valid_from", sa.Date(), nullable=False),
        sa.Column("valid_to", sa.Date(), nullable=True),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("created_at", Utc(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.CheckConstraint("valid_to IS NULL OR valid_to > valid_from", name=op.f("ck_shared_rule_valid_span")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_shared_rule")),
    )


def downgrade() -> None:
    for table in ("shared_rule", "period_line", "period_version", "ledger_period"):
        op.drop_table(table)
    op.drop_index("ix_ledger_window_closed", table_name="ledger_window")
    for name in ("estimate_cost", "charged_cost"):
        op.drop_column("ledger_window", name)
    for table in SUMS:
        for name in TRUEUP:
            op.drop_column(table, name)
