"""what was last measured of each budget

Revision ID: 0012
"""

import sqlalchemy as sa
from alembic import op

from models.base import Amount, Utc

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "budget_status",
        sa.Column("budget_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("period_start", Utc(), nullable=False),
        *_spend("spent"),
        *_spend("recent"),
        sa.Column("changed_at", Utc(), nullable=False),
        sa.PrimaryKeyConstraint("budget_id", name=op.f("pk_budget_status")),
    )


def _spend(name: str) -> list[sa.Column]:
    return [
        sa.Column(name, Amount(), nullable=True),
        sa.Column(f"{name}_running", Amount(), nullable=False),
        sa.Column(f"{name}_closed", Amount(), nullable=False),
        sa.Column(f"{name}_currency", sa.String(3), nullable=False),
        sa.Column(f"{name}_state", sa.String(), nullable=False),
        sa.Column(f"{name}_reason", sa.Text(), nullable=False),
    ]


def downgrade() -> None:
    op.drop_table("budget_status")
