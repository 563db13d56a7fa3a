"""incidents and their stories

Revision ID: 0022
"""

import sqlalchemy as sa
from alembic import op

from models.base import Amount, Utc

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "incident",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        *(sa.Column(name, sa.String(), nullable=False) for name in ("scope", "cause", "severity", "phase")),
        sa.Column("shadow", sa.Boolean(), nullable=False),
        sa.Column("opened_at", Utc(), nullable=False),
        sa.Column("told_at", Utc(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("breaker_id", sa.BigInteger(), nullable=True),
        sa.Column("recovered_at", Utc(), nullable=True),
        sa.Column("acknowledged_by", sa.String(), nullable=False),
        sa.Column("acknowledged_at", Utc(), nullable=True),
        sa.Column("assignee", sa.String(), nullable=False),
        sa.Column("at_risk", Amount(), nullable=True),
        sa.Column("at_risk_currency", sa.String(3), nullable=True),
        sa.Column("trip_spend", Amount(), nullable=True),
        sa.Column("trip_cap", Amount(), nullable=True),
        sa.Column("trip_currency", sa.String(3), nullable=True),
        sa.Column("trip_period", sa.String(), nullable=True),
        sa.Column("trip_period_end", Utc(), nullable=True),
        sa.Column("overshoot", Amount(), nullable=True),
        sa.Column("overshoot_reason", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_incident")),
    )
    op.create_index(op.f("ix_incident_opened_at"), "incident", ["opened_at"])
    still_open = sa.text("recovered_at IS NULL")
    op.create_index("uq_incident_open", "incident", ["scope", "cause"], unique=True, postgresql_where=still_open)
    op.create_table(
        "incident_moment",
        sa.Column("incident_id", sa.BigInteger(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("at", Utc(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("phase", sa.String(), nullable=False),
        sa.Column("severity", sa.String(), nullable=False),
        sa.Column("shadow", sa.Boolean(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["incident_id"], ["incident.id"], name=op.f("fk_incident_moment_incident_id_incident")),
        sa.PrimaryKeyConstraint("incident_id", "seq", name=op.f("pk_incident_moment")),
    )


def downgrade() -> None:
    op.drop_table("incident_moment")
    op.drop_table("incident")
