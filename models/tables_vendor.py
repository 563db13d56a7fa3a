"""Price lists of model vendors, a person's aliases, and bought requests by all their price depends on."""

from __future__ import annotations

from datetime import datetime, time
from decimal import Decimal

from sqlalchemy import BigInteger, Boolean, CheckConstraint, Identity, Index, Integer, Numeric, String, Time
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Utc, text_key


class VendorPriceRow(Base):
    """One entry of one sheet (``core.vendor_list``); a sheet is the rows of one (source, vendor, model, valid_from, imported_at)
    by ``position``. Never edited: what a later list says is a later sheet. Prices per million tokens; null: not known."""

    __tablename__ = "vendor_price"
    __table_args__ = (
        CheckConstraint("input >= 0 AND output >= 0 AND cache_read >= 0 AND reasoning >= 0", name="price_not_negative"),
        Index("ix_vendor_price_model", "vendor", "source", "model", "valid_from"),
    )
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    source: Mapped[str] = mapped_column(String, nullable=False)  # genai-prices | litellm-prices | vendor-card
    vendor: Mapped[str] = mapped_column(String, nullable=False)
    model: Mapped[str] = mapped_column(String, nullable=False)  # the list's own id
    match: Mapped[list[list[str]]] = mapped_column(JSONB, nullable=False)  # [[kind, text]] as the list has it
    valid_from: Mapped[datetime] = mapped_column(Utc, nullable=False)
    position: Mapped[int] = mapped_column(Integer, nullable=False)
    listed: Mapped[bool] = mapped_column(Boolean, nullable=False)  # false: the list no longer names the model
    currency: Mapped[str] = mapped_column(String(3), nullable=False)
    tier: Mapped[str] = mapped_column(String, nullable=False)  # standard | batch | flex | priority …
    above_tokens: Mapped[int] = mapped_column(BigInteger, nullable=False)  # of the prompt; the whole request is then sold so
    starts_at: Mapped[datetime | None] = mapped_column(Utc)
    day_from: Mapped[time | None] = mapped_column(Time)
    day_to: Mapped[time | None] = mapped_column(Time)
    zone: Mapped[str] = mapped_column(String, nullable=False)
    input: Mapped[Decimal | None] = mapped_column(Numeric)
    output: Mapped[Decimal | None] = mapped_column(Numeric)
    cache_read: Mapped[Decimal | None] = mapped_column(Numeric)
    cache_write_5m: Mapped[Decimal | None] = mapped_column(Numeric)
    cache_write_1h: Mapped[Decimal | None] = mapped_column(Numeric)
    reasoning: Mapped[Decimal | None] = mapped_column(Numeric)
    free: Mapped[bool] = mapped_column(Boolean, nullable=False)
    label: Mapped[str] = mapped_column(String, nullable=False)
    imported_at: Mapped[datetime] = mapped_column(Utc, nullable=False)


class VendorAliasRow(Base):
    """A person's word that a model is one of the lists (use price), or is to be compared with it (use compare)."""

    __tablename__ = "vendor_alias"
    __table_args__ = (CheckConstraint("use IN ('price', 'compare')", name="use"),)
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    use: Mapped[str] = mapped_column(String, nullable=False)
    vendor: Mapped[str] = mapped_column(String, nullable=False)  # '' : a model of one's own
    model: Mapped[str] = mapped_column(String, nullable=False)
    list_vendor: Mapped[str] = mapped_column(String, nullable=False)
    list_model: Mapped[str] = mapped_column(String, nullable=False)
    source: Mapped[str] = mapped_column(String, nullable=False)  # '' : any list
    valid_from: Mapped[datetime] = mapped_column(Utc, nullable=False)
    valid_to: Mapped[datetime | None] = mapped_column(Utc)
    made_by: Mapped[str] = mapped_column(String, nullable=False)
    reason: Mapped[str] = mapped_column(String, nullable=False)
    made_at: Mapped[datetime] = mapped_column(Utc, nullable=False)


def _sum() -> Mapped[int]:
    return mapped_column(BigInteger, nullable=False)


class _TokenSums:
    requests: Mapped[int] = _sum()
    input_uncached: Mapped[int] = _sum()
    input_cache_read: Mapped[int] = _sum()
    input_cache_write_5m: Mapped[int] = _sum()
    input_cache_write_1h: Mapped[int] = _sum()
    output: Mapped[int] = _sum()
    output_reasoning: Mapped[int] = _sum()


class BoughtUsageRow(_TokenSums, Base):
    """``core.bought.BoughtSum`` of the requests that finished in a quarter hour; an hour is replaced as a whole."""

    __tablename__ = "bought_usage"
    __table_args__ = (Index("ix_bought_usage_window", "window_start"),)
    cluster: Mapped[str] = text_key()
    namespace: Mapped[str] = text_key()
    model_id: Mapped[str] = text_key()
    window_start: Mapped[datetime] = mapped_column(Utc, primary_key=True)
    org: Mapped[str] = text_key()
    team: Mapped[str] = text_key()
    project: Mapped[str] = text_key()
    user_id: Mapped[str] = text_key()
    key_id: Mapped[str] = text_key()
    service_tier: Mapped[str] = text_key()
    status: Mapped[str] = text_key()
    usage_source: Mapped[str] = text_key()
    sold: Mapped[str] = text_key()
    prompt_above: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    prompt_upto: Mapped[int | None] = mapped_column(BigInteger)
    gateway_currency: Mapped[str] = text_key()
    gateway_cost: Mapped[Decimal] = mapped_column(Numeric, nullable=False)
    gateway_priced: Mapped[int] = _sum()


class BoughtHoleRow(_TokenSums, Base):
    """Bought requests of a closed quarter hour without a price; replaced whenever the quarter hour is closed again."""

    __tablename__ = "bought_hole"
    __table_args__ = (
        Index("ix_bought_hole_window", "window_start"),
        Index("ix_bought_hole_place", "cluster", "namespace", "model_id", "window_start"),
    )
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    cluster: Mapped[str] = mapped_column(String, nullable=False)
    namespace: Mapped[str] = mapped_column(String, nullable=False)
    model_id: Mapped[str] = mapped_column(String, nullable=False)
    window_start: Mapped[datetime] = mapped_column(Utc, nullable=False)
    org: Mapped[str] = mapped_column(String, nullable=False)
    team: Mapped[str] = mapped_column(String, nullable=False)
    project: Mapped[str] = mapped_column(String, nullable=False)
    user_id: Mapped[str] = mapped_column(String, nullable=False)
    key_id: Mapped[str] = mapped_column(String, nullable=False)
    sold: Mapped[str] = mapped_column(String, nullable=False)
    whole: Mapped[bool] = mapped_column(Boolean, nullable=False)  # nothing of the quarter hour has a price
    reason: Mapped[str] = mapped_column(String, nullable=False)
    hint: Mapped[str] = mapped_column(String, nullable=False)
