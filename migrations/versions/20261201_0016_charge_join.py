"""who charges belong to: identities of nodes, a person's matches, what is unmatched

Revision ID: 0016
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

from models.base import Utc

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

UNMATCHED = ("delivery", "provider", "resource_id", "instance_type", "bucket", "currency", "reason")


def _text(name: str, **more: object) -> sa.Column:
    return sa.Column(name, sa.String(), nullable=False, **more)


def _of_delivery(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["delivery"], ["bill_delivery.id"], name=op.f(f"fk_{table}_delivery_bill_delivery"))


def upgrade() -> None:
    op.add_column("node_charge", _text("matched_by", server_default=""))
    op.create_table(
        "charge_unmatched",
        sa.Column("delivery", sa.BigInteger(), nullable=False),
        *(_text(name) for name in UNMATCHED[1:]),
        _text("account"),
        _text("region"),
        sa.Column("names", JSONB(), nullable=False),
        sa.Column("candidates", JSONB(), nullable=False),
        sa.Column("first_at", Utc(), nullable=True),
        sa.Column("last_at", Utc(), nullable=True),
        sa.Column("hours", sa.Numeric(), nullable=False),
        sa.Column("billed", sa.Numeric(), nullable=False),
        sa.Column("effective", sa.Numeric(), nullable=False),
        sa.Column("list", sa.Numeric(), nullable=True),
        sa.Column("contracted", sa.Numeric(), nullable=True),
        _of_delivery("charge_unmatched"),
        sa.PrimaryKeyConstraint(*UNMATCHED, name=op.f("pk_charge_unmatched")),
    )
    op.create_table(
        "charge_join",
        sa.Column("delivery", sa.BigInteger(), nullable=False),
        _text("inventory"),
        _text("assignments"),
        sa.Column("first_hour", Utc(), nullable=True),
        sa.Column("last_hour", Utc(), nullable=True),
        sa.Column("joined_at", Utc(), nullable=False),
        _of_delivery("charge_join"),
        sa.PrimaryKeyConstraint("delivery", name=op.f("pk_charge_join")),
    )
    op.create_table(
        "node_identity",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        *(_text(name) for name in ("cluster", "node", "provider_id", "instance_type", "source")),
        sa.Column("valid_from", Utc(), nullable=False),
        sa.Column("valid_to", Utc(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_node_identity")),
    )
    op.create_index("ix_node_identity_node", "node_identity", ["cluster", "node", "valid_from"])
    op.create_table(
        "charge_match",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        *(_text(name) for name in ("resource_id", "cluster", "node")),
        sa.Column("ignored", sa.Boolean(), nullable=False),
        sa.Column("valid_from", Utc(), nullable=True),
        sa.Column("valid_to", Utc(), nullable=True),
        _text("made_by"),
        _text("reason"),
        sa.Column("made_at", Utc(), nullable=False),
        _text("undone_by", server_default=""),
        sa.Column("undone_at", Utc(), nullable=True),
        sa.CheckConstraint("ignored = (node = '')", name=op.f("ck_charge_match_ignored_or_node")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_charge_match")),
    )
    op.create_index("ix_charge_match_resource", "charge_match", ["resource_id"], postgresql_where=sa.text("undone_at IS NULL"))


def downgrade() -> None:
    for table in ("charge_match", "node_identity", "charge_join", "charge_unmatched"):
        op.drop_table(table)
    op.drop_column("node_charge", "matched_by")
