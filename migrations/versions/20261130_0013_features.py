"""features of requests by hour

Revision ID: 0013
"""

import sqlalchemy as sa
from alembic import op

from models.base import Utc

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "feature_hour",
        sa.Column("hour", Utc(), nullable=False),
        sa.Column("cluster", sa.String(), nullable=False),
        sa.Column("namespace", sa.String(), nullable=False),
        sa.Column("model_id", sa.String(), nullable=False),
        sa.Column("org", sa.String(), nullable=False),
        sa.Column("team", sa.String(), nullable=False),
        sa.Column("requests", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("counted_requests", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("cached_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("ratio_requests", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("ratio_quarters", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("session_requests", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("turn_1", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("turn_2", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("turn_3_4", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("turn_5_8", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("turn_9_16", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("turn_17_up", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("tool_known_requests", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("tool_requests", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("tool_calls", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("repeat_requests", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("repeat_e4", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("sketched_requests", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("sketched_input_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("similar_requests", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("shareable_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("hour", "cluster", "namespace", "model_id", "org", "team", name=op.f("pk_feature_hour")),
    )
    op.create_table(
        "tool_edge_hour",
        sa.Column("hour", Utc(), nullable=False),
        sa.Column("cluster", sa.String(), nullable=False),
        sa.Column("namespace", sa.String(), nullable=False),
        sa.Column("model_id", sa.String(), nullable=False),
        sa.Column("org", sa.String(), nullable=False),
        sa.Column("from_tool", sa.String(), nullable=False),
        sa.Column("to_tool", sa.String(), nullable=False),
        sa.Column("steps", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint(
            "hour", "cluster", "namespace", "model_id", "org", "from_tool", "to_tool", name=op.f("pk_tool_edge_hour")
        ),
    )
    op.create_table(
        "feature_file",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("noted_at", Utc(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_feature_file")),
    )
    op.create_table(
        "feature_dirty",
        sa.Column("hour", Utc(), nullable=False),
        sa.PrimaryKeyConstraint("hour", name=op.f("pk_feature_dirty")),
    )


def downgrade() -> None:
    op.drop_table("feature_dirty")
    op.drop_table("feature_file")
    op.drop_table("tool_edge_hour")
    op.drop_table("feature_hour")
