"""Charges joined to the machines of the inventory: made again whenever a delivery, a match or the inventory changes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

from sqlalchemy import BigInteger, Boolean, CheckConstraint, ForeignKey, Identity, Index, Integer, Numeric, String, text
from sqlalchemy.dialects.postgresql import JSONB
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
    matched_by: Mapped[str] = mapped_column(String, nullable=False, server_default="")  # core.charge_join.RULES


class ChargeUnmatchedRow(Base):
    """Charges of machines that belong to none of the inventory: what a delivery has of one resource, with the reason.

    With the node charges they add up to the delivery's charges of ``core.charge_join.JOINED`` exactly."""

    __tablename__ = "charge_unmatched"
    delivery: Mapped[int] = mapped_column(ForeignKey("bill_delivery.id"), primary_key=True)
    provider: Mapped[str] = mapped_column(String, primary_key=True)
    resource_id: Mapped[str] = mapped_column(String, primary_key=True)  # '' : the lines name no resource
    instance_type: Mapped[str] = mapped_column(String, primary_key=True)
    bucket: Mapped[str] = mapped_column(String, primary_key=True)
    currency: Mapped[str] = mapped_column(String, primary_key=True)
    reason: Mapped[str] = mapped_column(String, primary_key=True)  # core.charge_join.REASONS
    account: Mapped[str] = mapped_column(String, nullable=False)
    region: Mapped[str] = mapped_column(String, nullable=False)
    names: Mapped[Sequence[str]] = mapped_column(JSONB, nullable=False)  # of the machine, as its tags give them
    candidates: Mapped[Sequence[Sequence[str]]] = mapped_column(JSONB, nullable=False)  # [cluster, node] of several that fit
    first_at: Mapped[datetime | None] = mapped_column(Utc)  # null: the lines name no time of use
    last_at: Mapped[datetime | None] = mapped_column(Utc)  # end, not included
    hours: Mapped[Decimal] = mapped_column(Numeric, nullable=False)
    billed: Mapped[Decimal] = mapped_column(Numeric, nullable=False)
    effective: Mapped[Decimal] = mapped_column(Numeric, nullable=False)
    list: Mapped[Decimal | None] = mapped_column(Numeric)
    contracted: Mapped[Decimal | None] = mapped_column(Numeric)


class ChargeJoinRow(Base):
    """Against what a current delivery was joined last, and the hours its machine charges cover."""

    __tablename__ = "charge_join"
    delivery: Mapped[int] = mapped_column(ForeignKey("bill_delivery.id"), primary_key=True)
    inventory: Mapped[str] = mapped_column(String, nullable=False)  # digest of inventory, matches and rules
    assignments: Mapped[str] = mapped_column(String, nullable=False)  # digest of who got what
    first_hour: Mapped[datetime | None] = mapped_column(Utc)
    last_hour: Mapped[datetime | None] = mapped_column(Utc)  # end, not included
    joined_at: Mapped[datetime] = mapped_column(Utc, nullable=False)


class NodeIdentityRow(Base):
    """By what name a cloud bills a node, in [valid_from, valid_to)."""

    __tablename__ = "node_identity"
    __table_args__ = (Index("ix_node_identity_node", "cluster", "node", "valid_from"),)
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    cluster: Mapped[str] = mapped_column(String, nullable=False)
    node: Mapped[str] = mapped_column(String, nullable=False)
    provider_id: Mapped[str] = mapped_column(String, nullable=False)  # as told: aws:///us-east-1a/i-0abc, an ARN, a resource id
    instance_type: Mapped[str] = mapped_column(String, nullable=False)  # '' : not told
    source: Mapped[str] = mapped_column(String, nullable=False)
    valid_from: Mapped[datetime] = mapped_column(Utc, nullable=False)
    valid_to: Mapped[datetime | None] = mapped_column(Utc)


class ChargeMatchRow(Base):
    """A person's word on one resource: it is this node in [valid_from, valid_to), or (``ignored``) none of ours."""

    __tablename__ = "charge_match"
    __table_args__ = (
        CheckConstraint("ignored = (node = '')", name="ignored_or_node"),
        Index("ix_charge_match_resource", "resource_id", postgresql_where=text("undone_at IS NULL")),
    )
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    resource_id: Mapped[str] = mapped_column(String, nullable=False)  # as the bill writes it
    cluster: Mapped[str] = mapped_column(String, nullable=False)
    node: Mapped[str] = mapped_column(String, nullable=False)
    ignored: Mapped[bool] = mapped_column(Boolean, nullable=False)
    valid_from: Mapped[datetime | None] = mapped_column(Utc)  # null: since ever; whole UTC hours
    valid_to: Mapped[datetime | None] = mapped_column(Utc)
    made_by: Mapped[str] = mapped_column(String, nullable=False)
    reason: Mapped[str] = mapped_column(String, nullable=False)
    made_at: Mapped[datetime] = mapped_column(Utc, nullable=False)
    undone_by: Mapped[str] = mapped_column(String, nullable=False, server_default="")
    undone_at: Mapped[datetime | None] = mapped_column(Utc)
