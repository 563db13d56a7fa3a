"""how much of a budget's kept spend is there because bills say another price than rates

Revision ID: 0021
"""

import sqlalchemy as sa
from alembic import op

from models.base import Amount

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

NAMES = ("spent_trueup", "recent_trueup")


def upgrade() -> None:
    for name in NAMES:
        op.add_column("budget_status", sa.Column(name, Amount(), server_default="0", nullable=False))


def downgrade() -> None:
    for name in NAMES:
        op.drop_column("budget_status", name)
