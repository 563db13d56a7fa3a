"""exchange rates, typed discounts, hours of a tariff

Revision ID: 0019
"""

import sqlalchemy as sa
from alembic import op

from models.base import Utc

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "fx_rate",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("base", sa.String(3), nullable=False),
        sa.Column("quote", sa.String(3), nullable=False),
        sa.Column("rate", sa.Numeric(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("imported_at", Utc(), nullable=False),
        sa.CheckConstraint("rate > 0", name=op.f("ck_fx_rate_rate_positive")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_fx_rate")),
    )
    op.create_index("ix_fx_rate_day_base_quote", "fx_rate", ["day", "base", "quote"])
    op.create_table(
        "rate_discount",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("provider", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("percent", sa.Numeric(), nullable=False),
        sa.Column("valid_from", Utc(), nullable=False),
        sa.Column("valid_to", Utc(), nullable=True),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("typed_by", sa.String(), nullable=False),
        sa.Column("typed_at", Utc(), nullable=False),
        sa.CheckConstraint("percent > 0 AND percent < 100", name=op.f("ck_rate_discount_percent_between")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rate_discount")),
    )
    op.add_column("rate", sa.Column("band", sa.String(), nullable=False, server_default=""))


def downgrade() -> None:
    op.drop_column("rate", "band")
    op.drop_table("rate_discount")
    op.drop_table("fx_rate")
