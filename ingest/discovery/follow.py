"""All sources together: which targets there are now, and which came and went."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from core.errors import BadInput, Refused, Unavailable
from core.ports import FoundTarget, TargetSource
from ingest.engine.claims import address_of
from ingest.engine.faults import Fault
from ingest.engine.scraper import Target


@dataclass(frozen=True, slots=True)
class Change:
    """What one look at all sources brought. ``whole``: every source answered, so what is not here is nowhere."""

    at: datetime
    now: tuple[FoundTarget, ...]
    came: tuple[FoundTarget, ...] = ()
    went: tuple[FoundTarget, ...] = ()
    faults: tuple[Fault, ...] = ()
    whole: bool = True


class Discovery:
    """``look`` belongs to one thread; ``current`` may be read by others.

    Two sources that name one address give one target, the first source's; a source that does not answer keeps its targets.
    """

    def __init__(self, sources: Mapping[str, TargetSource], now: Callable[[], datetime]) -> None:
        self._sources, self._now = dict(sources), now
        self._known: dict[str, Sequence[FoundTarget]] = {}
        self._lock = threading.Lock()
        self._current: tuple[FoundTarget, ...] = ()

    @property
    def current(self) -> tuple[FoundTarget, ...]:
        with self._lock:
            return self._current

    def look(self) -> Change:
        """Ask every source once."""
        at = self._now()
        faults: list[Fault] = []
        for name, source in self._sources.items():
            try:
                self._known[name] = tuple(source.targets())
            except (Unavailable, Refused, BadInput) as error:
                faults.append(Fault("source_down", f"discovery {name}", at, detail={"reason": str(error)}))
        whole = not faults
        found = self._merged(at, faults)
        before = {_address(target): target for target in self.current}
        came = tuple(target for address, target in found.items() if address not in before)
        went = tuple(target for address, target in before.items() if address not in found)
        faults += [Fault("target_vanished", Target(target.url).name, at, detail={"node": target.node}) for target in went]
        with self._lock:
            self._current = tuple(found.values())
        return Change(at, tuple(found.values()), came, went, tuple(faults), whole)

    def _merged(self, at: datetime, faults: list[Fault]) -> dict[str, FoundTarget]:
        found: dict[str, FoundTarget] = {}
        for name, targets in self._known.items():
            for target in targets:
                if not _is_address(target):
                    detail = {"reason": "not an http address", "url": target.url}
                    faults.append(Fault("target_down", f"discovery {name}", at, target.url, detail))
                elif found.setdefault(_address(target), target) is not target:
                    hint = "two sources name it; it is scraped once"
                    faults.append(
                        Fault("read_twice", Target(target.url).name, at, name, {"left_out": f"discovery {name}", "hint": hint})
                    )
        return found


def _address(target: FoundTarget) -> str:
    return address_of(Target(target.url).name)


def _is_address(target: FoundTarget) -> bool:
    try:
        return bool(Target(target.url).name)
    except BadInput:
        return False
