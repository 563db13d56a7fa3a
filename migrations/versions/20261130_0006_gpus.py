"""what each GPU did and drew, by minute, hour and day

Revision ID: 0006
"""

import sqlalchemy as sa
from alembic import op

from models.base import Utc

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

KEYS = ("cluster", "node", "gpu", "mig", "gpu_model", "pods")
MEASURES = (
    "energy_uj", "energy_seen_us", "observed_us", "gap_us",
    "engine_active_us", "engine_active_seen_us", "sm_active_us", "sm_active_seen_us", "util_us", "util_seen_us",
    "power_uj", "power_seen_us", "memory_used_mib_us", "memory_total_mib_us", "memory_seen_us", "samples", "resets",
)


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    for unit in ("minute", "hour", "day"):
        options = {"postgresql_partition_by": "RANGE (minute)"} if unit == "minute" else {}
        op.create_table(
            f"gpu_{unit}",
            sa.Column(unit, Utc(), nullable=False),
            *(sa.Column(name, sa.String(), nullable=False) for name in KEYS),
            *(sa.Column(name, sa.BigInteger(), server_default="0", nullable=False) for name in MEASURES),
            sa.PrimaryKeyConstraint(unit, *KEYS, name=op.f(f"pk_gpu_{unit}")),
            **options,
        )
    op.create_index("ix_gpu_minute_node", "gpu_minute", ["cluster", "node", "minute"], unique=False)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    for unit in ("day", "hour", "minute"):
        op.drop_table(f"gpu_{unit}")
