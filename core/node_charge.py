"""What the bills in force say one machine cost in one UTC hour, and how that hour's money is shared by those who held its GPUs.

The ledger prices a quarter hour from these where a bill has come, from rates before that.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class NodeCharge:
    """One machine's running cost in ``[hour, hour + 1 h)`` by one current delivery. Several may stand for one node and hour: a
    correction of a closed month comes in a later delivery, and adds.

    Costs are exact as billed. A charge that spans several hours is split over them by ``core.hour_shares``; what is finer than
    the ledger's quantum stays with its first hour and is shown as rounding. ``hours``: machine hours billed in this hour.
    ``gpus``: of the whole machine, None where its type is not known. ``source`` names export, billing period and version.
    """

    cluster: str
    node: str
    hour: datetime
    currency: str
    billed: Decimal
    effective: Decimal
    list: Decimal | None
    contracted: Decimal | None
    hours: Decimal
    gpus: int | None
    resource_id: str
    instance_type: str
    source: str
    is_final: bool
    """The delivery's invoice is issued."""
    delivery: int
    """``bill_delivery.id``."""
    bucket: str = "gpu"
    """Of the charge: gpu, other_compute, correction, credit … (what names the machine counts for it, whatever its kind)."""
    matched_by: str = ""
    """The rule that found the machine (``core.charge_join.MATCH_RULES``)."""
