"""Who reads which engine: one reader per address, so that no token is counted twice."""

from __future__ import annotations

import threading
from collections.abc import Collection

import httpx


def address_of(target: str) -> str:
    """Host, port and path of a target's name; its scheme does not make it another engine."""
    try:
        url = httpx.URL(target)
    except httpx.InvalidURL:
        return target
    port = url.port or {"http": 80, "https": 443}.get(url.scheme)
    return f"{url.host}:{port}{url.path}{'#' + url.fragment if url.fragment else ''}" if url.host else target


class Claims:
    """Shared by the readers of one process. What is scraped directly is never read from elsewhere as well."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._scraped: frozenset[str] = frozenset()
        self._read: dict[str, str] = {}

    def scrape(self, targets: Collection[str]) -> None:
        """All targets that are scraped from now on."""
        found = frozenset(map(address_of, targets))
        with self._lock:
            self._scraped = found

    def may_read(self, owner: str, target: str) -> bool:
        """Whether ``owner`` is the one to read the target; the first that asks keeps it, unless it is scraped."""
        address = address_of(target)
        with self._lock:
            return address not in self._scraped and self._read.setdefault(address, owner) == owner
