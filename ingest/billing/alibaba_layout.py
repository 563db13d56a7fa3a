"""Alibaba's bill subscription in OSS: ``UID_BillingItemDetail_20260701`` a day, ``…_202607`` the whole month."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date

from ingest.billing.delivery import FileStore, FoundDelivery, Stored

_NAME = re.compile(r"(?:^|/)(?P<export>\d+_[A-Za-z]+Detail)_(?P<year>20\d\d)(?P<month>[01]\d)(?P<day>[0-3]\d)?(?=[._]|$)[^/]*$")


def alibaba_deliveries(store: FileStore, objects: Sequence[Stored]) -> Sequence[FoundDelivery]:
    """One delivery a month: its own file where it is there, which holds the days' lines again; else the days together."""
    months: dict[tuple[str, date], dict[bool, list[str]]] = {}
    for stored in objects:
        found = _NAME.search(stored.key)
        if found is not None:
            period = date(int(found["year"]), int(found["month"]), 1)
            of_day = months.setdefault((found["export"], period), {True: [], False: []})
            of_day[found["day"] is not None].append(stored.key)
    return [
        FoundDelivery(export, "", tuple(sorted(keys[False] or keys[True])), period)
        for (export, period), keys in sorted(months.items())
    ]
