"""newest comparison of each day's raw archive with its rollups

Revision ID: 0008
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

from models.base import Utc

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "standing_check",
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("cluster", sa.String(), nullable=False),
        sa.Column("namespace", sa.String(), nullable=False),
        sa.Column("model_id", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.Column("detail", JSONB(), nullable=False),
        sa.Column("differs_since", Utc(), nullable=True),
        sa.Column("checked_at", Utc(), nullable=False),
        sa.PrimaryKeyConstraint("day", "cluster", "namespace", "model_id", name=op.f("pk_standing_check")),
    )


def downgrade() -> None:
    op.drop_table("standing_check")
