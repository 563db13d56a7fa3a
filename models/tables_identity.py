"""Published identity rule sets, and what gateways call their keys, teams and users."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Identity, Index, Integer, String, Text, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Utc


class IdentityRuleSetRow(Base):
    """One version of the whole rule set. Never edited: a change is a new version with a later ``valid_from``."""

    __tablename__ = "identity_rule_set"
    version: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    valid_from: Mapped[datetime] = mapped_column(Utc, nullable=False)
    created_at: Mapped[datetime] = mapped_column(Utc, nullable=False)
    author: Mapped[str] = mapped_column(String, nullable=False)
    reason: Mapped[str] = mapped_column(Text, nullable=False)
    rules: Mapped[dict[str, Any]] = mapped_column(JSONB, nullable=False)
    digest: Mapped[str] = mapped_column(String, nullable=False)


class IdentityAliasRow(Base):
    """What a gateway called a key, team, user or organisation in [valid_from, valid_to): a rename ends one row and starts one.

    ``team_id``, ``user_id`` and ``org_id`` are the gateway's ids of what it belongs to ('' where it says none).
    """

    __tablename__ = "identity_alias"
    __table_args__ = (
        Index(
            "uq_identity_alias_current", "source", "kind", "external_id", unique=True, postgresql_where=text("valid_to IS NULL")
        ),
    )
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    source: Mapped[str] = mapped_column(String, nullable=False)  # litellm
    kind: Mapped[str] = mapped_column(String, nullable=False)  # key | team | user | org
    external_id: Mapped[str] = mapped_column(String, nullable=False)
    alias: Mapped[str] = mapped_column(String, nullable=False)
    team_id: Mapped[str] = mapped_column(String, nullable=False, server_default="")
    user_id: Mapped[str] = mapped_column(String, nullable=False, server_default="")
    org_id: Mapped[str] = mapped_column(String, nullable=False, server_default="")
    valid_from: Mapped[datetime] = mapped_column(Utc, nullable=False)
    valid_to: Mapped[datetime | None] = mapped_column(Utc)
