"""what PyTorch holds and uses of engines' GPU memory

Revision ID: 0017
"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

TABLES = ("engine_minute", "engine_hour", "engine_day")
COLUMNS = ("torch_seen_us", "torch_reserved_mib_us", "torch_allocated_mib_us")


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    for table in TABLES:
        for name in COLUMNS:
            op.add_column(table, sa.Column(name, sa.BigInteger(), server_default="0", nullable=False))


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    for table in TABLES:
        for name in reversed(COLUMNS):
            op.drop_column(table, name)
