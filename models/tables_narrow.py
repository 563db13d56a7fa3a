"""Sums of usage and ledger lines without the keys most questions do not name: by deployment without its tenants, by team without
its deployments, projects, users and keys. The same transaction that moves the full sums moves these."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index, SmallInteger
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Utc, text_key
from models.tables_money import LineSums
from models.tables_usage import UsageMeasures

DEPLOYMENT_KEYS: tuple[str, ...] = (
    "cluster", "namespace", "model_id", "service_tier", "status", "usage_source", "workload_class",
)  # fmt: skip
TEAM_KEYS: tuple[str, ...] = ("org", "team", "service_tier", "status", "usage_source")


def _time() -> Mapped[datetime]:
    return mapped_column(Utc, primary_key=True, sort_order=-1)


class _DeploymentKeys:
    cluster: Mapped[str] = text_key()
    namespace: Mapped[str] = text_key()
    model_id: Mapped[str] = text_key()
    service_tier: Mapped[str] = text_key()
    status: Mapped[str] = text_key()
    usage_source: Mapped[str] = text_key()
    workload_class: Mapped[int] = mapped_column(SmallInteger, primary_key=True)


class UsageDeploymentHourRow(_DeploymentKeys, UsageMeasures, Base):
    __tablename__ = "usage_deployment_hour"
    hour: Mapped[datetime] = _time()


class UsageDeploymentDayRow(_DeploymentKeys, UsageMeasures, Base):
    __tablename__ = "usage_deployment_day"
    day: Mapped[datetime] = _time()


class _TeamKeys:
    org: Mapped[str] = text_key()
    team: Mapped[str] = text_key()
    service_tier: Mapped[str] = text_key()
    status: Mapped[str] = text_key()
    usage_source: Mapped[str] = text_key()


class UsageTeamHourRow(_TeamKeys, UsageMeasures, Base):
    __tablename__ = "usage_team_hour"
    hour: Mapped[datetime] = _time()


class UsageTeamDayRow(_TeamKeys, UsageMeasures, Base):
    __tablename__ = "usage_team_day"
    __table_args__ = (Index("ix_usage_team_day_team", "org", "team", "day"),)
    day: Mapped[datetime] = _time()


class UsageTeamMonthRow(_TeamKeys, UsageMeasures, Base):
    __tablename__ = "usage_team_month"
    month: Mapped[datetime] = _time()


class _TeamLineSum(LineSums):
    """Team, kind and token kind of a line."""

    org: Mapped[str] = text_key()
    team: Mapped[str] = text_key()


class LedgerTeamHourRow(_TeamLineSum, Base):
    """Newest versions' lines by team and hour: the edges of a question about teams, and days of most zones."""

    __tablename__ = "ledger_team_hour"
    __table_args__ = (Index("ix_ledger_team_hour_team", "org", "team", "hour"),)
    hour: Mapped[datetime] = _time()


class LedgerTeamDayRow(_TeamLineSum, Base):
    """The same by UTC day."""

    __tablename__ = "ledger_team_day"
    __table_args__ = (Index("ix_ledger_team_day_team", "org", "team", "day"),)
    day: Mapped[datetime] = _time()


class LedgerTeamMonthRow(_TeamLineSum, Base):
    """The same by UTC month."""

    __tablename__ = "ledger_team_month"
    month: Mapped[datetime] = _time()
