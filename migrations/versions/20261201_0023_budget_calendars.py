"""budgets of fiscal quarters and years, and what rollover brings from the period before

Revision ID: 0023
"""

import sqlalchemy as sa
from alembic import op

from models.base import Amount

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("budget", sa.Column("fiscal_start", sa.SmallInteger(), server_default="1", nullable=False))
    op.add_column("budget", sa.Column("rollover", sa.Boolean(), server_default="false", nullable=False))
    op.add_column("budget_status", sa.Column("carried", Amount(), nullable=True))
    op.add_column("budget_status", sa.Column("carried_currency", sa.String(3), server_default="", nullable=False))
    op.add_column("budget_status", sa.Column("carried_reason", sa.Text(), server_default="", nullable=False))


def downgrade() -> None:
    for name in ("carried_reason", "carried_currency", "carried"):
        op.drop_column("budget_status", name)
    for name in ("rollover", "fiscal_start"):
        op.drop_column("budget", name)
