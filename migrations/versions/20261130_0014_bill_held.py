"""until when a bill delivery held, so that any earlier state can be read

Revision ID: 0014
"""

import sqlalchemy as sa
from alembic import op

from models.base import Utc

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("bill_delivery", sa.Column("superseded_at", Utc(), nullable=True))


def downgrade() -> None:
    op.drop_column("bill_delivery", "superseded_at")
