"""What the standing checks found."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

from sqlalchemy import BigInteger, Date, String
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Utc


class StandingCheckRow(Base):
    """Newest comparison of one UTC day of one deployment: sums of its raw archive rows against its usage rollups.

    ``status``: ok, or difference (``detail``: {measure: {"archive", "minute", "hour", "day"}} of those that differ).
    ``differs_since`` is when a difference still standing was first seen: one seen twice is a fault, one that went was a day whose
    late records were in the rollups before they were in the archive.
    """

    __tablename__ = "standing_check"
    day: Mapped[date] = mapped_column(Date, primary_key=True)
    cluster: Mapped[str] = mapped_column(String, primary_key=True)
    namespace: Mapped[str] = mapped_column(String, primary_key=True)
    model_id: Mapped[str] = mapped_column(String, primary_key=True)
    status: Mapped[str] = mapped_column(String, nullable=False)
    requests: Mapped[int] = mapped_column(BigInteger, nullable=False)
    detail: Mapped[dict[str, Any]] = mapped_column(JSONB, nullable=False)
    differs_since: Mapped[datetime | None] = mapped_column(Utc)
    checked_at: Mapped[datetime] = mapped_column(Utc, nullable=False)
