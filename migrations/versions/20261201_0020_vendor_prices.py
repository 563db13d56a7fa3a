"""price lists of model vendors and bought requests

Revision ID: 0020
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

from models.base import Utc

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

COUNTS = (
    "requests", "input_uncached", "input_cache_read", "input_cache_write_5m", "input_cache_write_1h", "output",
    "output_reasoning",
)  # fmt: skip
BUCKETS = ("input", "output", "cache_read", "cache_write_5m", "cache_write_1h", "reasoning")
PLACE = ("cluster", "namespace", "model_id")
TENANT = ("org", "team", "project", "user_id", "key_id")


def _text(*names: str) -> list[sa.Column]:
    return [sa.Column(name, sa.String(), nullable=False) for name in names]


def _sums() -> list[sa.Column]:
    return [sa.Column(name, sa.BigInteger(), nullable=False) for name in COUNTS]


def _time(name: str, *, optional: bool = False) -> sa.Column:
    return sa.Column(name, Utc(), nullable=optional)


def _id() -> sa.Column:
    return sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False)


def upgrade() -> None:
    _prices()
    _bought()
    # The keeper of features also sums bought requests: every hour with some is summed once from the archive.
    op.execute("INSERT INTO feature_dirty SELECT DISTINCT hour FROM usage_hour WHERE cluster = 'vendor' ON CONFLICT DO NOTHING")


def _prices() -> None:
    op.create_table(
        "vendor_price",
        _id(),
        *_text("source", "vendor", "model"),
        sa.Column("match", JSONB(), nullable=False),
        _time("valid_from"),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("listed", sa.Boolean(), nullable=False),
        sa.Column("currency", sa.String(3), nullable=False),
        *_text("tier"),
        sa.Column("above_tokens", sa.BigInteger(), nullable=False),
        _time("starts_at", optional=True),
        sa.Column("day_from", sa.Time(), nullable=True),
        sa.Column("day_to", sa.Time(), nullable=True),
        *_text("zone"),
        *[sa.Column(name, sa.Numeric(), nullable=True) for name in BUCKETS],
        sa.Column("free", sa.Boolean(), nullable=False),
        *_text("label"),
        _time("imported_at"),
        sa.CheckConstraint(
            "input >= 0 AND output >= 0 AND cache_read >= 0 AND reasoning >= 0", name=op.f("ck_vendor_price_price_not_negative")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_vendor_price")),
    )
    op.create_index("ix_vendor_price_model", "vendor_price", ["vendor", "source", "model", "valid_from"])
    op.create_table(
        "vendor_alias",
        _id(),
        *_text("use", "vendor", "model", "list_vendor", "list_model", "source"),
        _time("valid_from"),
        _time("valid_to", optional=True),
        *_text("made_by", "reason"),
        _time("made_at"),
        sa.CheckConstraint("use IN ('price', 'compare')", name=op.f("ck_vendor_alias_use")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_vendor_alias")),
    )


def _bought() -> None:
    keys = (*PLACE, "window_start", *TENANT, "service_tier", "status", "usage_source", "sold", "prompt_above", "gateway_currency")
    op.create_table(
        "bought_usage",
        *_text(*PLACE),
        _time("window_start"),
        *_text(*TENANT, "service_tier", "status", "usage_source", "sold"),
        sa.Column("prompt_above", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("prompt_upto", sa.BigInteger(), nullable=True),
        *_text("gateway_currency"),
        sa.Column("gateway_cost", sa.Numeric(), nullable=False),
        sa.Column("gateway_priced", sa.BigInteger(), nullable=False),
        *_sums(),
        sa.PrimaryKeyConstraint(*keys, name=op.f("pk_bought_usage")),
    )
    op.create_index("ix_bought_usage_window", "bought_usage", ["window_start"])
    op.create_table(
        "bought_hole",
        _id(),
        *_text(*PLACE),
        _time("window_start"),
        *_text(*TENANT, "sold"),
        sa.Column("whole", sa.Boolean(), nullable=False),
        *_text("reason", "hint"),
        *_sums(),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_bought_hole")),
    )
    op.create_index("ix_bought_hole_window", "bought_hole", ["window_start"])
    op.create_index("ix_bought_hole_place", "bought_hole", [*PLACE, "window_start"])


def downgrade() -> None:
    for table in ("bought_hole", "bought_usage", "vendor_alias", "vendor_price"):
        op.drop_table(table)
