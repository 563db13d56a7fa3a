"""gateways' own token counters

Revision ID: 0003
"""

import sqlalchemy as sa
from alembic import op

from models.base import Utc

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_table(
        "gateway_counter_minute",
        sa.Column("minute", Utc(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("metric", sa.String(), nullable=False),
        sa.Column("cluster", sa.String(), nullable=False),
        sa.Column("namespace", sa.String(), nullable=False),
        sa.Column("model_id", sa.String(), nullable=False),
        sa.Column("token_type", sa.String(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint(
            "minute", "source", "metric", "cluster", "namespace", "model_id", "token_type", name=op.f("pk_gateway_counter_minute")
        ),
    )
    op.create_table(
        "gateway_counter_series",
        sa.Column("series", sa.String(), nullable=False),
        sa.Column("start_ns", sa.BigInteger(), nullable=False),
        sa.Column("at_ns", sa.BigInteger(), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", Utc(), nullable=False),
        sa.PrimaryKeyConstraint("series", name=op.f("pk_gateway_counter_series")),
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_table("gateway_counter_series")
    op.drop_table("gateway_counter_minute")
