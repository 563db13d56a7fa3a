"""charges joined to the machines of the inventory

Revision ID: 0015
"""

import sqlalchemy as sa
from alembic import op

from models.base import Utc

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

KEYS = ("cluster", "node", "hour", "delivery", "resource_id", "bucket", "currency")


def upgrade() -> None:
    op.create_table(
        "node_charge",
        sa.Column("cluster", sa.String(), nullable=False),
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("hour", Utc(), nullable=False),
        sa.Column("delivery", sa.BigInteger(), nullable=False),
        sa.Column("resource_id", sa.String(), nullable=False),
        sa.Column("bucket", sa.String(), nullable=False),
        sa.Column("currency", sa.String(), nullable=False),
        sa.Column("instance_type", sa.String(), nullable=False),
        sa.Column("billed", sa.Numeric(), nullable=False),
        sa.Column("effective", sa.Numeric(), nullable=False),
        sa.Column("list", sa.Numeric(), nullable=True),
        sa.Column("contracted", sa.Numeric(), nullable=True),
        sa.Column("hours", sa.Numeric(), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["delivery"], ["bill_delivery.id"], name=op.f("fk_node_charge_delivery_bill_delivery")),
        sa.PrimaryKeyConstraint(*KEYS, name=op.f("pk_node_charge")),
    )
    op.create_index("ix_node_charge_hour", "node_charge", ["hour"])
    op.create_index("ix_node_charge_delivery", "node_charge", ["delivery"])


def downgrade() -> None:
    op.drop_table("node_charge")
