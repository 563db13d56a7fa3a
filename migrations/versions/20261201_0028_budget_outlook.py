"""what a budget's own history says of its future

Revision ID: 0028
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from models.base import Utc

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "budget_outlook",
        sa.Column("budget_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("made_at", Utc(), nullable=False),
        sa.Column("history_from", Utc(), nullable=True),
        sa.Column("history_to", Utc(), nullable=True),
        sa.Column("weeks", sa.Integer(), nullable=False),
        sa.Column("profile", postgresql.JSONB(none_as_null=True), nullable=True),
        sa.Column("profile_reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("budget_id", name=op.f("pk_budget_outlook")),
    )


def downgrade() -> None:
    op.drop_table("budget_outlook")
