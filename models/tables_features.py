"""Features of requests by hour, and which hours of the raw archive they still have to be computed of."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Utc, sum_of, text_key


class FeatureHourRow(Base):
    """Sums of ``core.features.MEASURES`` over the answered requests that finished in an hour; an hour is replaced as a whole."""

    __tablename__ = "feature_hour"
    hour: Mapped[datetime] = mapped_column(Utc, primary_key=True)
    cluster: Mapped[str] = text_key()
    namespace: Mapped[str] = text_key()
    model_id: Mapped[str] = text_key()
    org: Mapped[str] = text_key()
    team: Mapped[str] = text_key()
    requests: Mapped[int] = sum_of()
    counted_requests: Mapped[int] = sum_of()
    input_tokens: Mapped[int] = sum_of()
    cached_tokens: Mapped[int] = sum_of()
    output_tokens: Mapped[int] = sum_of()
    ratio_requests: Mapped[int] = sum_of()
    ratio_quarters: Mapped[int] = sum_of()
    session_requests: Mapped[int] = sum_of()
    turn_1: Mapped[int] = sum_of()
    turn_2: Mapped[int] = sum_of()
    turn_3_4: Mapped[int] = sum_of()
    turn_5_8: Mapped[int] = sum_of()
    turn_9_16: Mapped[int] = sum_of()
    turn_17_up: Mapped[int] = sum_of()
    tool_known_requests: Mapped[int] = sum_of()
    tool_requests: Mapped[int] = sum_of()
    tool_calls: Mapped[int] = sum_of()
    repeat_requests: Mapped[int] = sum_of()
    repeat_e4: Mapped[int] = sum_of()
    sketched_requests: Mapped[int] = sum_of()
    sketched_input_tokens: Mapped[int] = sum_of()
    similar_requests: Mapped[int] = sum_of()
    shareable_tokens: Mapped[int] = sum_of()


class ToolEdgeHourRow(Base):
    """How often one tool was called after another within a session; '' before the first. Replaced with its hour."""

    __tablename__ = "tool_edge_hour"
    hour: Mapped[datetime] = mapped_column(Utc, primary_key=True)
    cluster: Mapped[str] = text_key()
    namespace: Mapped[str] = text_key()
    model_id: Mapped[str] = text_key()
    org: Mapped[str] = text_key()
    from_tool: Mapped[str] = text_key()
    to_tool: Mapped[str] = text_key()
    steps: Mapped[int] = sum_of()


class FeatureFileRow(Base):
    """A file of the usage archive whose hours are marked; its row is written in the transaction of the marks."""

    __tablename__ = "feature_file"
    name: Mapped[str] = mapped_column(String, primary_key=True)
    noted_at: Mapped[datetime] = mapped_column(Utc, nullable=False)


class FeatureDirtyRow(Base):
    """An hour whose features are to be computed. Marking and computing hold one lock, so no mark is set meanwhile and lost."""

    __tablename__ = "feature_dirty"
    hour: Mapped[datetime] = mapped_column(Utc, primary_key=True)
