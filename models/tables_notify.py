"""Channels people are told by, their routes, and the tickets and threads made in them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Identity, String, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Utc


class ChannelRow(Base):
    """One way to tell people. ``secrets`` holds references (env:NAME, file:PATH), never a secret."""

    __tablename__ = "channel"
    name: Mapped[str] = mapped_column(String, primary_key=True)
    kind: Mapped[str] = mapped_column(String, nullable=False)
    config: Mapped[dict[str, Any]] = mapped_column(JSONB, nullable=False)
    secrets: Mapped[dict[str, Any]] = mapped_column(JSONB, nullable=False)
    language: Mapped[str] = mapped_column(String, nullable=False)
    created_by: Mapped[str] = mapped_column(String, nullable=False)
    created_at: Mapped[datetime] = mapped_column(Utc, nullable=False)


class ChannelRouteRow(Base):
    """``core.routing.Route`` of a channel."""

    __tablename__ = "channel_route"
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    channel: Mapped[str] = mapped_column(String, ForeignKey("channel.name", ondelete="CASCADE"), nullable=False)
    scope: Mapped[str] = mapped_column(String, nullable=False)
    severity: Mapped[str] = mapped_column(String, nullable=False)
    owner: Mapped[str] = mapped_column(String, nullable=False)


class IncidentTicketRow(Base):
    """An incident's ticket or thread in a channel. ``external_id`` '' = begun, not known to be made: ask before making one."""

    __tablename__ = "incident_ticket"
    incident_id: Mapped[int] = mapped_column(BigInteger, ForeignKey("incident.id"), primary_key=True)
    channel: Mapped[str] = mapped_column(String, primary_key=True)
    external_id: Mapped[str] = mapped_column(String, nullable=False)
    url: Mapped[str] = mapped_column(Text, nullable=False)
    status: Mapped[str] = mapped_column(String, nullable=False)
    assignee: Mapped[str] = mapped_column(String, nullable=False)
    begun_at: Mapped[datetime] = mapped_column(Utc, nullable=False)
    synced_at: Mapped[datetime | None] = mapped_column(Utc)
