"""Who may do what: API tokens, kept as hashes only."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import String, UniqueConstraint
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Utc


class ApiTokenRow(Base):
    """``id`` is public and part of the token text ``tf_<id>_<secret>``; only sha256(secret) is kept (secret: 256 random bits)."""

    __tablename__ = "api_token"
    __table_args__ = (UniqueConstraint("name"),)
    id: Mapped[str] = mapped_column(String, primary_key=True)
    name: Mapped[str] = mapped_column(String, nullable=False)
    secret_hash: Mapped[str] = mapped_column(String, nullable=False)
    scopes: Mapped[list[str]] = mapped_column(ARRAY(String), nullable=False)  # ingest | read | operate | admin | policy
    tenant_scope: Mapped[str] = mapped_column(String, nullable=False, server_default="")  # '' = all, else "ORG/TEAM"
    created_at: Mapped[datetime] = mapped_column(Utc, nullable=False)
    expires_at: Mapped[datetime | None] = mapped_column(Utc)
    revoked_at: Mapped[datetime | None] = mapped_column(Utc)
