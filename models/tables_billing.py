"""Bills: what was delivered, and its charges by day. A delivery is never edited: a later one takes its place."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Date,
    ForeignKey,
    Identity,
    Index,
    Integer,
    Numeric,
    String,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Utc


class BillDeliveryRow(Base):
    """One version of (source, export, billing period). Of each at most one is ``current``; a refused one changed nothing."""

    __tablename__ = "bill_delivery"
    __table_args__ = (
        CheckConstraint("status IN ('current', 'superseded', 'refused')", name="status_known"),
        Index("ix_bill_delivery_current", "source", "export", "billing_period", unique=True,
              postgresql_where=text("status = 'current'")),
        UniqueConstraint("source", "export", "billing_period", "version"),
    )  # fmt: skip
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    source: Mapped[str] = mapped_column(String, nullable=False)  # aws | azure | gcp … | a SaaS vendor
    export: Mapped[str] = mapped_column(String, nullable=False)  # the report's or export's own name
    billing_period: Mapped[date] = mapped_column(Date, nullable=False)  # first day of the issuer's period
    version: Mapped[int] = mapped_column(Integer, nullable=False)
    delivery_id: Mapped[str] = mapped_column(String, nullable=False)  # the vendor's (assembly, execution, run), else the digest
    format: Mapped[str] = mapped_column(String, nullable=False)
    origin: Mapped[str] = mapped_column(String, nullable=False)  # folder, file or URL it was read from
    status: Mapped[str] = mapped_column(String, nullable=False)
    reason: Mapped[str] = mapped_column(String, nullable=False, server_default="")  # why refused, or by what it was replaced
    digest: Mapped[str] = mapped_column(String, nullable=False)  # of manifest, data files and options
    rows: Mapped[int] = mapped_column(BigInteger, nullable=False, server_default="0")
    totals: Mapped[list[dict[str, Any]]] = mapped_column(
        JSONB, nullable=False
    )  # [{currency, billed, effective, list, contracted}]
    invoice_ids: Mapped[list[str]] = mapped_column(JSONB, nullable=False)
    is_final: Mapped[bool] = mapped_column(Boolean, nullable=False)  # every row with a billed cost names its invoice
    folder: Mapped[str] = mapped_column(String, nullable=False, server_default="")  # under DATA: lines-*.parquet, charges.parquet
    notes: Mapped[list[str]] = mapped_column(JSONB, nullable=False)  # what a person should know of it
    received_at: Mapped[datetime] = mapped_column(Utc, nullable=False)
    superseded_at: Mapped[datetime | None] = mapped_column(Utc)  # it held in [received_at, superseded_at)


class ChargeDayRow(Base):
    """Charges of a delivery summed by UTC day of charge and by everything that tells them apart. Costs are exact."""

    __tablename__ = "charge_day"
    __table_args__ = (
        Index("ix_charge_day_delivery", "delivery", "day"),
        Index("ix_charge_day_resource", "resource_id", "day"),
    )
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    delivery: Mapped[int] = mapped_column(ForeignKey("bill_delivery.id"), nullable=False)
    billing_period: Mapped[date] = mapped_column(Date, nullable=False)  # the row's own: a delivery may hold rows of others
    day: Mapped[date | None] = mapped_column(Date)  # null: the line names no time of use
    provider: Mapped[str] = mapped_column(String, nullable=False)
    billing_account: Mapped[str] = mapped_column(String, nullable=False)
    account: Mapped[str] = mapped_column(String, nullable=False)
    service: Mapped[str] = mapped_column(String, nullable=False)
    region: Mapped[str] = mapped_column(String, nullable=False)
    resource_id: Mapped[str] = mapped_column(String, nullable=False)
    instance_type: Mapped[str] = mapped_column(String, nullable=False)
    sku: Mapped[str] = mapped_column(String, nullable=False)
    meter: Mapped[str] = mapped_column(String, nullable=False)  # usage type, SKU meter
    commitment_id: Mapped[str] = mapped_column(String, nullable=False)
    bucket: Mapped[str] = mapped_column(String, nullable=False)  # core.billing.BUCKETS
    kind: Mapped[str] = mapped_column(String, nullable=False)
    charge_category: Mapped[str] = mapped_column(String, nullable=False)
    charge_class: Mapped[str] = mapped_column(String, nullable=False)
    currency: Mapped[str] = mapped_column(String, nullable=False)
    invoice_id: Mapped[str] = mapped_column(String, nullable=False)
    unit: Mapped[str] = mapped_column(String, nullable=False)
    tags: Mapped[dict[str, Any]] = mapped_column(JSONB, nullable=False)
    list_known: Mapped[bool] = mapped_column(Boolean, nullable=False)
    rows: Mapped[int] = mapped_column(BigInteger, nullable=False)
    billed: Mapped[Decimal] = mapped_column(Numeric, nullable=False)
    effective: Mapped[Decimal] = mapped_column(Numeric, nullable=False)
    list: Mapped[Decimal | None] = mapped_column(Numeric)
    contracted: Mapped[Decimal | None] = mapped_column(Numeric)
    memo: Mapped[Decimal] = mapped_column(Numeric, nullable=False)  # split rows: cost that other rows hold, in no sum
    quantity: Mapped[Decimal | None] = mapped_column(Numeric)
    hours: Mapped[Decimal | None] = mapped_column(Numeric)  # instance hours
