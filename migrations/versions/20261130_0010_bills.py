"""bill deliveries by version, and their charges by day

Revision ID: 0010
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

from models.base import Utc

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

TEXTS = (
    "provider", "billing_account", "account", "service", "region", "resource_id", "instance_type", "sku", "meter",
    "commitment_id", "bucket", "kind", "charge_category", "charge_class", "currency", "invoice_id", "unit",
)


def upgrade() -> None:
    op.create_table(
        "bill_delivery",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("export", sa.String(), nullable=False),
        sa.Column("billing_period", sa.Date(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("delivery_id", sa.String(), nullable=False),
        sa.Column("format", sa.String(), nullable=False),
        sa.Column("origin", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), server_default="", nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("rows", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("totals", JSONB(), nullable=False),
        sa.Column("invoice_ids", JSONB(), nullable=False),
        sa.Column("is_final", sa.Boolean(), nullable=False),
        sa.Column("folder", sa.String(), server_default="", nullable=False),
        sa.Column("notes", JSONB(), nullable=False),
        sa.Column("received_at", Utc(), nullable=False),
        sa.CheckConstraint("status IN ('current', 'superseded', 'refused')", name=op.f("ck_bill_delivery_status_known")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_bill_delivery")),
        sa.UniqueConstraint("source", "export", "billing_period", "version", name=op.f("uq_bill_delivery_source_export_billing_period_version")),
    )
    op.create_index("ix_bill_delivery_current", "bill_delivery", ["source", "export", "billing_period"], unique=True,
                    postgresql_where=sa.text("status = 'current'"))
    op.create_table(
        "charge_day",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("delivery", sa.BigInteger(), nullable=False),
        sa.Column("billing_period", sa.Date(), nullable=False),
        sa.Column("day", sa.Date(), nullable=True),
        *(sa.Column(name, sa.String(), nullable=False) for name in TEXTS),
        sa.Column("tags", JSONB(), nullable=False),
        sa.Column("list_known", sa.Boolean(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.Column("billed", sa.Numeric(), nullable=False),
        sa.Column("effective", sa.Numeric(), nullable=False),
        sa.Column("list", sa.Numeric(), nullable=True),
        sa.Column("contracted", sa.Numeric(), nullable=True),
        sa.Column("memo", sa.Numeric(), nullable=False),
        sa.Column("quantity", sa.Numeric(), nullable=True),
        sa.Column("hours", sa.Numeric(), nullable=True),
        sa.ForeignKeyConstraint(["delivery"], ["bill_delivery.id"], name=op.f("fk_charge_day_delivery_bill_delivery")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_charge_day")),
    )
    op.create_index("ix_charge_day_delivery", "charge_day", ["delivery", "day"])
    op.create_index("ix_charge_day_resource", "charge_day", ["resource_id", "day"])


def downgrade() -> None:
    op.drop_table("charge_day")
    op.drop_table("bill_delivery")
