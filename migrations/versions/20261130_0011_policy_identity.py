"""identity rules in the policy that guards obey

Revision ID: 0011
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("policy_version", sa.Column("identity", JSONB(), nullable=True))


def downgrade() -> None:
    op.drop_column("policy_version", "identity")
