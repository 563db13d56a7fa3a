"""what finished requests say, other engines' caches, rejections and KV means of engines

Revision ID: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TABLES = ("engine_minute", "engine_hour", "engine_day")
COLUMNS = (
    "prompt_tokens_external", "finished_prompt_tokens", "finished_generation_tokens", "n_answers", "n_requests", "rejections",
    "prefix_queries", "prefix_hits", "forward_us", "kv_seen_us", "kv_full_us", "kv_capacity_us",
)


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
