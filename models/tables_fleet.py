"""The newest answer to each check of the fleet."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Utc


class FleetCheckRow(Base):
    """What ``core.fleet_checks`` last said of one engine or gateway. ``subject`` is the engine's metrics address or the gateway's
    URL; ``seen`` is empty where the value could not be read; all rows bear the time of the one round that wrote them."""

    __tablename__ = "fleet_check"
    subject: Mapped[str] = mapped_column(String, primary_key=True)
    check_id: Mapped[str] = mapped_column(String, primary_key=True)
    kind: Mapped[str] = mapped_column(String, nullable=False)
    verdict: Mapped[str] = mapped_column(String, nullable=False)
    seen: Mapped[str] = mapped_column(String, nullable=False)
    read_from: Mapped[str] = mapped_column(String, nullable=False)
    reason: Mapped[str] = mapped_column(String, nullable=False)
    fix: Mapped[str] = mapped_column(String, nullable=False)
    checked_at: Mapped[datetime] = mapped_column(Utc, nullable=False)
