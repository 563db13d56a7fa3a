"""What the control loop last measured of each budget, kept so that a page need not measure it again."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import BigInteger, Integer, String, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Amount, Base, Utc


class BudgetStatusRow(Base):
    """Spend of a budget's running period and of its last hour (``core.spend.Spend``, twice). A row is written when a figure
    changes; when all of them were last seen to be so stands in heartbeat ``budgets``."""

    __tablename__ = "budget_status"
    budget_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    period_start: Mapped[datetime] = mapped_column(Utc, nullable=False)
    spent: Mapped[Decimal | None] = mapped_column(Amount)  # NULL: not known, see the reason
    spent_running: Mapped[Decimal] = mapped_column(Amount, nullable=False)
    spent_closed: Mapped[Decimal] = mapped_column(Amount, nullable=False)
    spent_trueup: Mapped[Decimal] = mapped_column(Amount, nullable=False, server_default="0")  # of closed: bills less rates
    spent_currency: Mapped[str] = mapped_column(String(3), nullable=False)
    spent_state: Mapped[str] = mapped_column(String, nullable=False)  # estimate | provisional
    spent_reason: Mapped[str] = mapped_column(Text, nullable=False)
    recent: Mapped[Decimal | None] = mapped_column(Amount)
    recent_running: Mapped[Decimal] = mapped_column(Amount, nullable=False)
    recent_closed: Mapped[Decimal] = mapped_column(Amount, nullable=False)
    recent_trueup: Mapped[Decimal] = mapped_column(Amount, nullable=False, server_default="0")  # of closed: bills less rates
    recent_currency: Mapped[str] = mapped_column(String(3), nullable=False)
    recent_state: Mapped[str] = mapped_column(String, nullable=False)
    recent_reason: Mapped[str] = mapped_column(Text, nullable=False)
    carried: Mapped[Decimal | None] = mapped_column(Amount)  # from the period before; NULL: not known
    carried_currency: Mapped[str] = mapped_column(String(3), nullable=False, server_default="")
    carried_reason: Mapped[str] = mapped_column(Text, nullable=False, server_default="")
    changed_at: Mapped[datetime] = mapped_column(Utc, nullable=False)


class BudgetOutlookRow(Base):
    """What a budget's closed hours say of its future (``models.budget_outlook_repo.Outlook``), made anew about hourly."""

    __tablename__ = "budget_outlook"
    budget_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    made_at: Mapped[datetime] = mapped_column(Utc, nullable=False)
    history_from: Mapped[datetime | None] = mapped_column(Utc)
    history_to: Mapped[datetime | None] = mapped_column(Utc)
    weeks: Mapped[int] = mapped_column(Integer, nullable=False)
    profile: Mapped[list[str] | None] = mapped_column(JSONB(none_as_null=True))  # 168 weights, Monday 00:00 first; NULL: uniform
    profile_reason: Mapped[str] = mapped_column(Text, nullable=False)
    forecast: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))  # core.budget_forecast.PeriodForecast
