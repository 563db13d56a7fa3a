"""first schema (frozen by autogenerate before the first landing)

Revision ID: 0001
"""

from alembic import op

from models.tables import metadata

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    metadata.create_all(op.get_bind())
    op.execute("""
        CREATE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'the audit trail is append-only'; END $$
    """)
    op.execute("""
        CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit
        FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only()
    """)


def downgrade() -> None:
    metadata.drop_all(op.get_bind())
    op.execute("DROP FUNCTION audit_is_append_only()")
