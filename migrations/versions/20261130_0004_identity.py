"""identity rule sets, and what gateways call their keys, teams and users

Revision ID: 0004
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "identity_rule_set",
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("valid_from", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("author", sa.String(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("rules", postgresql.JSONB(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("version", name=op.f("pk_identity_rule_set")),
    )
    op.create_table(
        "identity_alias",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("external_id", sa.String(), nullable=False),
        sa.Column("alias", sa.String(), nullable=False),
        sa.Column("team_id", sa.String(), server_default="", nullable=False),
        sa.Column("user_id", sa.String(), server_default="", nullable=False),
        sa.Column("org_id", sa.String(), server_default="", nullable=False),
        sa.Column("valid_from", sa.DateTime(timezone=True), nullable=False),
        sa.Column("valid_to", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_identity_alias")),
    )
    op.create_index(
        "uq_identity_alias_current",
        "identity_alias",
        ["source", "kind", "external_id"],
        unique=True,
        postgresql_where=sa.text("valid_to IS NULL"),
    )


def downgrade() -> None:
    op.drop_index("uq_identity_alias_current", table_name="identity_alias", postgresql_where=sa.text("valid_to IS NULL"))
    op.drop_table("identity_alias")
    op.drop_table("identity_rule_set")
