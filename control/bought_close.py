"""Close quarter hours of bought deployments: their requests priced by the vendors' lists, and the holes beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import Connection

from core.bought import BoughtWindow, close_bought
from core.ledger import LedgerWindow
from core.usage import Deployment
from core.windows import Window
from models.bought_repo import bought_inputs, replace_holes
from models.ledger_versions import Head
from models.vendor_repo import read_book


def close_bought_windows(
    connection: Connection,
    deployment: Deployment,
    windows: Sequence[Window],
    heads: Mapping[datetime, Head],
    order: Sequence[str],
    currency: str,
) -> tuple[list[LedgerWindow], int]:
    """The windows that differ from their heads, and how many do not. Writes their holes; the caller writes the versions, under
    the locks of a close. A quarter hour in which no request finished has no window, unless it had one before."""
    book = read_book(connection, {deployment.namespace}, order)
    fresh: list[BoughtWindow] = []
    for inputs in bought_inputs(connection, deployment, windows, currency):
        head = heads.get(inputs.window.start)
        if head is None and not inputs.sums and not inputs.metered_requests:
            continue
        found = close_bought(inputs, book)
        if head is None or head.digest != found.closed.detail["input_digest"]:
            fresh.append(found)
    replace_holes(connection, deployment, fresh)
    return [found.closed for found in fresh], len(windows) - len(fresh)
