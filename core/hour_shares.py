"""A charge over an interval as parts of UTC hours that add up to it exactly. ``ingest.billing.join_sql`` does so in SQL."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import ROUND_FLOOR, Decimal, localcontext

from core.money import CONTEXT, QUANTUM
from core.windows import Window

HOUR = timedelta(hours=1)
_US = timedelta(microseconds=1)


def hour_shares(whole: Decimal, interval: Window) -> Mapping[datetime, Decimal]:
    """``whole`` over the UTC hours ``interval`` meets, evenly by time, in quanta of 1e-12; what is finer goes to the first hour.

    The part of [a, b) of an interval of d is floor(quanta·b/d) − floor(quanta·a/d): neighbouring parts add up without a rest. A
    charge within one hour is that hour's, whole. Negative costs are shared like positive ones.
    """
    hours = list(interval.quanta(HOUR))
    if len(hours) == 1:
        return {hours[0].start: whole}
    with localcontext(CONTEXT):
        sign = -1 if whole < 0 else 1
        quanta = int((abs(whole) / QUANTUM).to_integral_value(ROUND_FLOOR))
        long = interval.duration // _US
        shares: dict[datetime, Decimal] = {}
        for hour in hours:
            low = (max(hour.start, interval.start) - interval.start) // _US
            high = (min(hour.end, interval.end) - interval.start) // _US
            shares[hour.start] = sign * (quanta * high // long - quanta * low // long) * QUANTUM
        shares[hours[0].start] += whole - sign * quanta * QUANTUM
        return shares
