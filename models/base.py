"""Declarative base, naming convention and the two column types that matter: exact money and aware UTC."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import BigInteger, DateTime, Dialect, MetaData, Numeric, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=NAMING)


class Utc(TypeDecorator[datetime]):
    """``timestamptz`` that refuses naive values and always returns UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is not None and value.tzinfo is None:
            raise ValueError("naive datetime at the database boundary")
        return value

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC)


class Amount(TypeDecorator[Decimal]):
    """``NUMERIC(38, 12)``: money to the quantum 1e-12; refuses floats."""

    impl = Numeric(38, 12)
    cache_ok = True

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> Decimal | None:
        if isinstance(value, float):
            raise TypeError("money must be Decimal, not float")
        return value


def text_key() -> Mapped[str]:
    """A text in a natural key: '' where there is nothing to say, never NULL."""
    return mapped_column(String, primary_key=True)


def sum_of() -> Mapped[int]:
    """A count that deltas are added to."""
    return mapped_column(BigInteger, nullable=False, server_default="0")
