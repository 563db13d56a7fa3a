"""Charges joined to the machines of the inventory: made again whenever a delivery or a match changes."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from sqlalchemy import ForeignKey, Index, Integer, Numeric, String
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Utc


class NodeChargeRow(Base):
    """``core.node_charge.NodeCharge``; rows of a delivery that is no longer current are deleted when it is replaced."""

    __tablename__ = "node_charge"
    __table_args__ = (Index("ix_node_charge_hour", "hour"), Index("ix_node_charge_delivery", "delivery"))
    cluster: Mapped[str] = mapped_column(String, primary_key=True)
    node: Mapped[str] = mapped_column(String, primary_key=True)
    hour: Mapped[datetime] = mapped_column(Utc, primary_key=True)
    delivery: Mapped[int] = mapped_column(ForeignKey("bill_delivery.id"), primary_key=True)
    resource_id: Mapped[str] = mapped_column(String, primary_key=True)
    bucket: Mapped[str] = mapped_column(String, primary_key=True)
    currency: Mapped[str] = mapped_column(String, primary_key=True)
    instance_type: Mapped[str] = mapped_column(String, nullable=False)
    billed: Mapped[Decimal] = mapped_column(Numeric, nullable=False)
    effective: Mapped[Decimal] = mapped_column(Numeric, nullable=False)
    list: Mapped[Decimal | None] = mapped_column(Numeric)
    contracted: Mapped[Decimal | None] = mapped_column(Numeric)
    hours: Mapped[Decimal] = mapped_column(Numeric, nullable=False)
    gpus: Mapped[int | None] = mapped_column(Integer)
