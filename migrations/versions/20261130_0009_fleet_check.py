"""newest answer to each check of the fleet

Revision ID: 0009
"""

import sqlalchemy as sa
from alembic import op

from models.base import Utc

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "fleet_check",
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("check_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("verdict", sa.String(), nullable=False),
        sa.Column("seen", sa.String(), nullable=False),
        sa.Column("read_from", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("fix", sa.String(), nullable=False),
        sa.Column("checked_at", Utc(), nullable=False),
        sa.PrimaryKeyConstraint("subject", "check_id", name=op.f("pk_fleet_check")),
    )


def downgrade() -> None:
    op.drop_table("fleet_check")
