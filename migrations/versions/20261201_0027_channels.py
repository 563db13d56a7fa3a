"""channels, their routes and the tickets made in them

Revision ID: 0027
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

from models.base import Utc

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def _texts(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.String(), nullable=False) for name in names]


def upgrade() -> None:
    op.create_table(
        "channel",
        *_texts("name", "kind"),
        sa.Column("config", JSONB(), nullable=False),
        sa.Column("secrets", JSONB(), nullable=False),
        *_texts("language", "created_by"),
        sa.Column("created_at", Utc(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_channel")),
    )
    op.create_table(
        "channel_route",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        *_texts("channel", "scope", "severity", "owner"),
        sa.ForeignKeyConstraint(["channel"], ["channel.name"], name=op.f("fk_channel_route_channel_channel"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_channel_route")),
    )
    op.create_table(
        "incident_ticket",
        sa.Column("incident_id", sa.BigInteger(), nullable=False),
        *_texts("channel", "external_id"),
        sa.Column("url", sa.Text(), nullable=False),
        *_texts("status", "assignee"),
        sa.Column("begun_at", Utc(), nullable=False),
        sa.Column("synced_at", Utc(), nullable=True),
        sa.ForeignKeyConstraint(["incident_id"], ["incident.id"], name=op.f("fk_incident_ticket_incident_id_incident")),
        sa.PrimaryKeyConstraint("incident_id", "channel", name=op.f("pk_incident_ticket")),
    )


def downgrade() -> None:
    for table in ("incident_ticket", "channel_route", "channel"):
        op.drop_table(table)
