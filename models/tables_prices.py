"""What prices need beside themselves: exchange rates and discounts a person typed."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

from sqlalchemy import BigInteger, CheckConstraint, Date, Identity, Index, Numeric, String
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Utc


class FxRateRow(Base):
    """``core.fx.FxRate``. Never edited: a corrected rate is a new row, and the last one of a day, pair holds."""

    __tablename__ = "fx_rate"
    __table_args__ = (CheckConstraint("rate > 0", name="rate_positive"), Index(None, "day", "base", "quote"))
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    day: Mapped[date] = mapped_column(Date, nullable=False)
    base: Mapped[str] = mapped_column(String(3), nullable=False)
    quote: Mapped[str] = mapped_column(String(3), nullable=False)
    rate: Mapped[Decimal] = mapped_column(Numeric, nullable=False)  # 1 base = rate quote, every digit kept
    source: Mapped[str] = mapped_column(String, nullable=False)
    imported_at: Mapped[datetime] = mapped_column(Utc, nullable=False)


class RateDiscountRow(Base):
    """``core.discount.Discount``: in force in [valid_from, valid_to); ended by a person by setting the end."""

    __tablename__ = "rate_discount"
    __table_args__ = (CheckConstraint("percent > 0 AND percent < 100", name="percent_between"),)
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    provider: Mapped[str] = mapped_column(String, nullable=False)
    kind: Mapped[str] = mapped_column(String, nullable=False)  # core.rates.RateKind
    percent: Mapped[Decimal] = mapped_column(Numeric, nullable=False)
    valid_from: Mapped[datetime] = mapped_column(Utc, nullable=False)
    valid_to: Mapped[datetime | None] = mapped_column(Utc)
    reason: Mapped[str] = mapped_column(String, nullable=False)
    typed_by: Mapped[str] = mapped_column(String, nullable=False)
    typed_at: Mapped[datetime] = mapped_column(Utc, nullable=False)
