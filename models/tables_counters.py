"""Gateways' own token counters (OTLP metrics): a cross-check of the usage records, never money."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, String
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Utc


class GatewayCounterRow(Base):
    """Tokens a gateway or SDK says it counted in a minute. ``token_type`` input and output are wholes; cached_input,
    cache_creation_input and reasoning are parts of them. ``metric`` tells apart two names that carry the same tokens."""

    __tablename__ = "gateway_counter_minute"
    minute: Mapped[datetime] = mapped_column(Utc, primary_key=True)
    source: Mapped[str] = mapped_column(String, primary_key=True)
    metric: Mapped[str] = mapped_column(String, primary_key=True)
    cluster: Mapped[str] = mapped_column(String, primary_key=True)
    namespace: Mapped[str] = mapped_column(String, primary_key=True)
    model_id: Mapped[str] = mapped_column(String, primary_key=True)
    token_type: Mapped[str] = mapped_column(String, primary_key=True)
    tokens: Mapped[int] = mapped_column(BigInteger, nullable=False, server_default="0")


class GatewayCounterSeriesRow(Base):
    """The last point folded of each series (``core.gateway_counter.SeriesState``); changed in the transaction of its tokens."""

    __tablename__ = "gateway_counter_series"
    series: Mapped[str] = mapped_column(String, primary_key=True)
    start_ns: Mapped[int] = mapped_column(BigInteger, nullable=False)
    at_ns: Mapped[int] = mapped_column(BigInteger, nullable=False)
    value: Mapped[int] = mapped_column(BigInteger, nullable=False)
    updated_at: Mapped[datetime] = mapped_column(Utc, nullable=False)
