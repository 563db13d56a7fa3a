"""what of the fleet may be acted on, and every action

Revision ID: 0025
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

from models.base import Utc

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "fleet_target",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        *(sa.Column(name, sa.String(), nullable=False) for name in ("scope", "actuator", "address")),
        sa.Column("options", JSONB(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("created_at", Utc(), nullable=False),
        sa.Column("retired_at", Utc(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_fleet_target")),
    )
    standing = sa.text("retired_at IS NULL")
    op.create_index("uq_fleet_target_standing", "fleet_target", ["actuator", "address"], unique=True, postgresql_where=standing)
    op.create_table(
        "fleet_switch",
        sa.Column("actuator", sa.String(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("changed_by", sa.String(), nullable=False),
        sa.Column("changed_at", Utc(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("actuator", name=op.f("pk_fleet_switch")),
    )
    op.create_table(
        "fleet_action",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("breaker_id", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("target_id", sa.BigInteger(), nullable=False),
        *(sa.Column(name, sa.String(), nullable=False) for name in ("move", "state")),
        *(sa.Column(name, JSONB(), nullable=False) for name in ("before", "wanted")),
        sa.Column("planned_at", Utc(), nullable=False),
        *(sa.Column(name, Utc(), nullable=True) for name in ("expires_at", "tried_at", "applied_at", "verified_at", "ended_at")),
        sa.Column("end_asked_by", sa.String(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("commands", JSONB(), nullable=False),
        sa.ForeignKeyConstraint(["target_id"], ["fleet_target.id"], name=op.f("fk_fleet_action_target_id_fleet_target")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_fleet_action")),
        sa.UniqueConstraint(
            "breaker_id", "epoch", "target_id", "move", name=op.f("uq_fleet_action_breaker_id_epoch_target_id_move")
        ),
    )
    op.create_index(op.f("ix_fleet_action_state"), "fleet_action", ["state"])


def downgrade() -> None:
    op.drop_table("fleet_action")
    op.drop_table("fleet_switch")
    op.drop_table("fleet_target")
