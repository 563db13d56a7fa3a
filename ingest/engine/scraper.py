"""Live scraping: every target on one schedule; what does not answer is a gap and a fault, never a zero."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import httpx

from core.errors import BadInput, Unavailable
from core.ports import EventLog, Page
from ingest.engine.families import MAX_PAGE_BYTES
from ingest.engine.faults import Fault, FaultKind
from ingest.engine.origin import Origin, TargetKind
from ingest.engine.service import EngineIngest

ACCEPT = "text/plain;version=0.0.4,application/openmetrics-text;version=1.0.0;q=0.5"


@dataclass(frozen=True, slots=True)
class Target:
    """One metrics address and the capacity behind it. ``model_id`` is the gateway's name of the page's model; ``kind`` is what
    the page should show."""

    url: str
    gpu_type: str = ""
    gpu_count: int = 0
    node: str = ""
    cluster: str = ""
    namespace: str = ""
    model_id: str | None = None
    kind: TargetKind = "engine"

    @property
    def address(self) -> httpx.URL:
        """The page's address; ``/metrics`` where only a host is given. Raises BadInput."""
        try:
            url = httpx.URL(self.url)
        except httpx.InvalidURL as error:
            raise BadInput("not a URL", field="url", value=self.url, hint="use http://HOST:PORT") from error
        if url.scheme not in ("http", "https") or not url.host:
            raise BadInput("not an http address", field="url", value=self.url, hint="use http://HOST:PORT")
        return url.copy_with(path="/metrics") if url.path in ("", "/") else url

    @property
    def name(self) -> str:
        """The address without user, password, query and fragment: the ``target`` of the engine key."""
        url = self.address
        return f"{url.scheme}://{url.netloc.decode()}{url.path}"


@dataclass(frozen=True, slots=True)
class ScrapeSettings:
    """``timeout_s`` bounds one scrape from connect to last byte."""

    interval_s: float = 5.0
    timeout_s: float = 4.0
    max_bytes: int = MAX_PAGE_BYTES
    workers: int = 64


class _Refused(Exception):
    def __init__(self, kind: FaultKind, **detail: object) -> None:
        super().__init__(kind)
        self.kind, self.detail = kind, detail


class LivePages:
    """A PageSource: each ``pages()`` asks every target once, several at a time, and yields the pages in the targets' order.

    Targets that gave none are in ``faults`` afterwards. Raises BadInput for a wrong or repeated target.
    """

    def __init__(self, targets: Sequence[Target], settings: ScrapeSettings, now: Callable[[], datetime]) -> None:
        names = [target.name for target in targets]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise BadInput("target is listed twice", field="targets", value=twice[0], hint="its tokens would count twice")
        self.targets, self._settings, self._now = dict(zip(names, targets, strict=True)), settings, now
        self.faults: list[Fault] = []
        self._pool = ThreadPoolExecutor(settings.workers, thread_name_prefix="scrape")
        self._client = httpx.Client(
            follow_redirects=False,
            trust_env=False,
            headers={"accept": ACCEPT, "accept-encoding": "identity"},
            timeout=settings.timeout_s,
        )

    def follow(self, targets: Sequence[Target]) -> None:
        """Ask these from the next walk on; one address is asked once. Raises BadInput for a wrong one."""
        self.targets = {target.name: target for target in reversed(targets)}

    def pages(self) -> Iterator[Page]:
        self.faults = []
        for found in self._pool.map(self._one, self.targets.items()):
            if isinstance(found, Page):
                yield found
            else:
                self.faults.append(found)

    def close(self) -> None:
        self._pool.shutdown(wait=True)
        self._client.close()

    def _one(self, named: tuple[str, Target]) -> Page | Fault:
        name, target = named
        asked_at = self._now()
        try:
            return self._fetch(name, target)
        except _Refused as error:
            return Fault(error.kind, name, asked_at, detail=error.detail)
        except httpx.TimeoutException as error:
            return Fault("target_timeout", name, asked_at, detail={"timeout_s": self._settings.timeout_s, "reason": repr(error)})
        except httpx.RemoteProtocolError as error:
            return Fault("page_cut_short", name, asked_at, detail={"reason": repr(error)})
        except httpx.DecodingError as error:
            return Fault("bad_page", name, asked_at, detail={"reason": repr(error)})
        except httpx.HTTPError as error:
            return Fault("target_down", name, asked_at, detail={"reason": repr(error)})

    def _fetch(self, name: str, target: Target) -> Page:
        deadline = time.monotonic() + self._settings.timeout_s
        body = bytearray()
        with self._client.stream("GET", target.address) as response:
            at = self._now()
            if response.is_redirect:
                raise _Refused("redirect_refused", status=response.status_code, location=response.headers.get("location", ""))
            if response.status_code != 200:
                raise _Refused("http_status", status=response.status_code)
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > self._settings.max_bytes:
                    raise _Refused("page_too_large", limit_bytes=self._settings.max_bytes)
                if time.monotonic() > deadline:
                    raise _Refused("target_timeout", timeout_s=self._settings.timeout_s, reason="the page came too slowly")
            return Page(name, at, bytes(body), response.headers.get("content-type", ""))


def run_scraper(
    targets: Sequence[Target],
    log: EventLog,
    interval_s: float,
    stop: threading.Event,
    now: Callable[[], datetime],
    *,
    ensure_partitions: Callable[[Iterable[datetime]], None],
    settings: ScrapeSettings | None = None,
    on_round: Callable[[int, int], None] | None = None,
    find: Callable[[], Sequence[Target]] | None = None,
) -> None:
    """Scrape until ``stop`` is set. Round k is due at start + k x interval; a round come too late is left out, not caught up.

    ``on_round`` gets (samples, faults) of each round. ``find`` tells before each round which targets there are now, in the
    place of ``targets``. A log that refuses (disk full) costs the round, not the process.
    """
    chosen = replace(settings or ScrapeSettings(), interval_s=interval_s)
    source = LivePages(targets, replace(chosen, timeout_s=min(chosen.timeout_s, interval_s)), now)
    ingest = EngineIngest(log, now, ensure_partitions)
    watched_since, started = now(), time.monotonic()
    try:
        while not stop.is_set():
            if find is not None:
                source.follow(find())
            samples, faults = _round(source, ingest, watched_since, interval_s)
            if on_round is not None:
                on_round(samples, faults)
            stop.wait(until_due_s(time.monotonic() - started, interval_s))
    finally:
        source.close()


def until_due_s(past_s: float, interval_s: float) -> float:
    """Seconds to wait for the next multiple of the interval, ``past_s`` after the start: rounds neither drift nor bunch."""
    return (past_s // interval_s + 1) * interval_s - past_s


def _round(source: LivePages, ingest: EngineIngest, watched_since: datetime, interval_s: float) -> tuple[int, int]:
    pages = [(page, origin_of(source.targets[page.target], watched_since, interval_s)) for page in source.pages()]
    try:
        taken = ingest.take(pages, source.faults)
    except Unavailable:
        return 0, 0
    return taken.samples, taken.faults


def origin_of(target: Target, watched_since: datetime, interval_s: float) -> Origin:
    return Origin(
        cluster=target.cluster,
        namespace=target.namespace,
        node=target.node,
        model_id=target.model_id,
        watched_since=watched_since,
        interval_ms=timedelta(seconds=interval_s) // timedelta(milliseconds=1),
        kind=target.kind,
    )
