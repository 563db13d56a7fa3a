"""Features of requests by hour, and which hours of the raw archive they still have to be computed of."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, String
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Utc


def _key() -> Mapped[str]:
    return mapped_column(String, primary_key=True)


def _sum() -> Mapped[int]:
    return mapped_column(BigInteger, nullable=False, server_default="0")


class FeatureHourRow(Base):
    """Sums of ``core.features.MEASURES`` over the answered requests that finished in an hour; an hour is replaced as a whole."""

    __tablename__ = "feature_hour"
    hour: Mapped[datetime] = mapped_column(Utc, primary_key=True)
    cluster: Mapped[str] = _key()
    namespace: Mapped[str] = _key()
    model_id: Mapped[str] = _key()
    org: Mapped[str] = _key()
    team: Mapped[str] = _key()
    requests: Mapped[int] = _sum()
    counted_requests: Mapped[int] = _sum()
    input_tokens: Mapped[int] = _sum()
    cached_tokens: Mapped[int] = _sum()
    output_tokens: Mapped[int] = _sum()
    ratio_requests: Mapped[int] = _sum()
    ratio_quarters: Mapped[int] = _sum()
    session_requests: Mapped[int] = _sum()
    turn_1: Mapped[int] = _sum()
    turn_2: Mapped[int] = _sum()
    turn_3_4: Mapped[int] = _sum()
    turn_5_8: Mapped[int] = _sum()
    turn_9_16: Mapped[int] = _sum()
    turn_17_up: Mapped[int] = _sum()
    tool_known_requests: Mapped[int] = _sum()
    tool_requests: Mapped[int] = _sum()
    tool_calls: Mapped[int] = _sum()
    repeat_requests: Mapped[int] = _sum()
    repeat_e4: Mapped[int] = _sum()
    sketched_requests: Mapped[int] = _sum()
    sketched_input_tokens: Mapped[int] = _sum()
    similar_requests: Mapped[int] = _sum()
    shareable_tokens: Mapped[int] = _sum()


class ToolEdgeHourRow(Base):
    """How often one tool was called after another within a session; '' before the first. Replaced with its hour."""

    __tablename__ = "tool_edge_hour"
    hour: Mapped[datetime] = mapped_column(Utc, primary_key=True)
    cluster: Mapped[str] = _key()
    namespace: Mapped[str] = _key()
    model_id: Mapped[str] = _key()
    org: Mapped[str] = _key()
    from_tool: Mapped[str] = _key()
    to_tool: Mapped[str] = _key()
    steps: Mapped[int] = _sum()


class FeatureFileRow(Base):
    """A file of the usage archive whose hours are marked; its row is written in the transaction of the marks."""

    __tablename__ = "feature_file"
    name: Mapped[str] = mapped_column(String, primary_key=True)
    noted_at: Mapped[datetime] = mapped_column(Utc, nullable=False)


class FeatureDirtyRow(Base):
    """An hour whose features are to be computed. Marking and computing hold one lock, so no mark is set meanwhile and lost."""

    __tablename__ = "feature_dirty"
    hour: Mapped[datetime] = mapped_column(Utc, primary_key=True)
