"""versions of the workload classes, and what people call a class

Revision ID: 0026
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

from models.base import Utc

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "workload_model",
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("valid_from", Utc(), nullable=True),
        sa.Column("created_at", Utc(), nullable=False),
        sa.Column("author", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("model", JSONB(), nullable=False),
        sa.Column("trained", JSONB(), nullable=False),
        sa.PrimaryKeyConstraint("version", name=op.f("pk_workload_model")),
        sa.UniqueConstraint("valid_from", name=op.f("uq_workload_model_valid_from")),
    )
    op.create_table(
        "workload_class_name",
        sa.Column("number", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("author", sa.String(), nullable=False),
        sa.Column("changed_at", Utc(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_workload_class_name")),
    )


def downgrade() -> None:
    op.drop_table("workload_class_name")
    op.drop_table("workload_model")
