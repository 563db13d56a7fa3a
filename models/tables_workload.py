"""Versions of the workload classes, and what people call a class."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Integer, SmallInteger, String, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Utc


class WorkloadModelRow(Base):
    """One version. It holds for requests that finish from ``valid_from`` on, until the next one's; NULL: not activated.
    ``kind`` is trained or new_class; ``model`` is ``core.workload_codec``'s, ``trained`` says on what and how stable."""

    __tablename__ = "workload_model"
    version: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    valid_from: Mapped[datetime | None] = mapped_column(Utc, unique=True)
    created_at: Mapped[datetime] = mapped_column(Utc, nullable=False)
    author: Mapped[str] = mapped_column(String, nullable=False)
    kind: Mapped[str] = mapped_column(String, nullable=False)
    reason: Mapped[str] = mapped_column(Text, nullable=False)
    model: Mapped[dict[str, Any]] = mapped_column(JSONB, nullable=False)
    trained: Mapped[dict[str, Any]] = mapped_column(JSONB, nullable=False)


class WorkloadClassNameRow(Base):
    """A person's name for a class; it stands in the place of the one made from the centre."""

    __tablename__ = "workload_class_name"
    number: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)
    name: Mapped[str] = mapped_column(String, nullable=False)
    author: Mapped[str] = mapped_column(String, nullable=False)
    changed_at: Mapped[datetime] = mapped_column(Utc, nullable=False)
