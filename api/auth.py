"""Who is calling: bearer tokens, verified in the database and remembered for a few seconds; failures are counted."""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

from api.errors import TooMany, Unauthenticated
from models.access_repo import Principal

LOG = logging.getLogger("tokenfuse.api.auth")
TOKEN_TEXT = re.compile(r"tf_[A-Za-z0-9]{1,64}_[A-Za-z0-9_-]{16,200}")
MAX_REMEMBERED = 10_000
WINDOW_S = 60.0


@dataclass(slots=True)
class _Known:
    principal: Principal
    until_s: float


class FailureMeter:
    """Failed attempts per client address within the last minute; bounded in addresses."""

    def __init__(self, limit: int, clock: Callable[[], float]) -> None:
        self._limit, self._clock = limit, clock
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()
        self._lock = threading.Lock()

    def exceeded(self, client: str) -> bool:
        with self._lock:
            times = self._failures.get(client)
            if times is None:
                return False
            while times and times[0] <= self._clock() - WINDOW_S:
                times.popleft()
            return len(times) >= self._limit

    def count(self, client: str) -> None:
        with self._lock:
            self._failures.setdefault(client, deque(maxlen=self._limit)).append(self._clock())
            self._failures.move_to_end(client)
            while len(self._failures) > MAX_REMEMBERED:
                self._failures.popitem(last=False)


class Authenticator:
    """Turns an Authorization header into a principal.

    ``verify`` asks the database. A verified token is remembered for ``ttl_s`` (a revoked one lives no longer), by the hash of
    its text. A client over its failure limit is refused unasked, unless its token was good before: one noisy neighbour
    behind the same address must not lock the others out.
    """

    def __init__(
        self, verify: Callable[[str], Principal | None], *, ttl_s: float, limit: int, clock: Callable[[], float]
    ) -> None:
        self._verify, self._ttl_s, self._clock = verify, ttl_s, clock
        self._failures = FailureMeter(limit, clock)
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._lock = threading.Lock()

    def remembered(self, header: str | None) -> Principal | None:
        """The principal when it was verified within the last ``ttl_s``; never blocks."""
        text = bearer(header)
        if text is None:
            return None
        known = self._known.get(_digest(text))
        return known.principal if known and known.until_s > self._clock() else None

    def authenticate(self, header: str | None, client: str) -> Principal:
        """Raises Unauthenticated, or TooMany after too many failures of ``client``."""
        text = bearer(header)
        digest = _digest(text) if text else b""
        if digest not in self._known and self._failures.exceeded(client):
            raise TooMany("too many failed sign-ins from this address", retry_after_s=30)
        principal = self._verify(text) if text else None
        if principal is None:
            self._forget(digest)
            self._failures.count(client)
            LOG.warning("sign-in refused: client=%s token_id=%s", client, _public_id(text))
            raise Unauthenticated(
                "no valid token", hint="send `Authorization: Bearer tf_…`; make one with `tokenfuse token create`"
            )
        self._remember(digest, principal)
        return principal

    def forget_all(self) -> None:
        """The next request of every token asks the database again."""
        with self._lock:
            self._known.clear()

    def _remember(self, digest: bytes, principal: Principal) -> None:
        with self._lock:
            self._known[digest] = _Known(principal, self._clock() + self._ttl_s)
            self._known.move_to_end(digest)
            while len(self._known) > MAX_REMEMBERED:
                self._known.popitem(last=False)

    def _forget(self, digest: bytes) -> None:
        with self._lock:
            self._known.pop(digest, None)


def bearer(header: str | None) -> str | None:
    """The token text of an Authorization header, None when it does not even look like one."""
    scheme, _, text = (header or "").partition(" ")
    text = text.strip()
    return text if scheme.lower() == "bearer" and TOKEN_TEXT.fullmatch(text) else None


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _public_id(text: str | None) -> str:
    return text.split("_")[1] if text else "none"
