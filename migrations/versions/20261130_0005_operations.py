"""operations and attempts whose end is unknown, beside requests

Revision ID: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

TABLES = ("usage_minute", "usage_hour", "usage_day", "usage_month")
COLUMNS = ("operations", "end_unknown")


def upgrade() -> None:
    """What was answered, refused or left ended its operation; of failures counted before this nobody knows."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    for table in TABLES:
        for name in COLUMNS:
            op.add_column(table, sa.Column(name, sa.BigInteger(), server_default="0", nullable=False))
        op.execute(f"UPDATE {table} SET operations = requests WHERE status <> 'error' AND requests <> 0")
        op.execute(f"UPDATE {table} SET end_unknown = requests WHERE status = 'error' AND requests <> 0")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    for table in TABLES:
        for name in reversed(COLUMNS):
            op.drop_column(table, name)
