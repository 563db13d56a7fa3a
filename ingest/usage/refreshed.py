"""What the database says and this process holds for a few seconds: read when it is due, kept while the database is away."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from core.errors import TokenfuseError

LOG = logging.getLogger("tokenfuse.ingest")
REFRESH_S = 5.0
"""Every process knows what was published within this time; publishing asks for more lead than that."""


class Revised(Protocol):
    """A state that says which it is."""

    @property
    def revision(self) -> str: ...


S = TypeVar("S", bound=Revised)
V = TypeVar("V")


class Refreshed(Generic[S, V]):
    """``made`` of the newest state; several threads may share one. ``load`` gives, for the revision held, the newer
    state or None. ``clock`` is monotonic seconds; ``what`` names it in the log."""

    def __init__(
        self,
        load: Callable[[str], S | None],
        made: Callable[[S], V],
        clock: Callable[[], float],
        *,
        empty: V,
        what: str,
        refresh_s: float = REFRESH_S,
    ) -> None:
        self._load, self._made, self._clock, self._refresh_s, self._what = load, made, clock, refresh_s, what
        self._lock = threading.Lock()
        self._due: float | None = None
        self._revision = ""
        self._value = empty

    def value(self) -> V:
        """Raises what ``load`` raises as long as no state was ever read; later a failed refresh keeps the last one."""
        if self._due is not None and self._clock() < self._due:
            return self._value
        with self._lock:
            if self._due is None or self._clock() >= self._due:
                self._refresh()
            return self._value

    def _refresh(self) -> None:
        try:
            state = self._load(self._revision)
        except TokenfuseError as error:
            if self._due is None:
                raise
            LOG.warning("%s were not refreshed", self._what, extra={"reason": str(error)})
            state = None
        if state is not None:
            self._value, self._revision = self._made(state), state.revision
        self._due = self._clock() + self._refresh_s
