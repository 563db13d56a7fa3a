"""One OTLP body from bytes to the log: decoded, turned into rows, judged; what is not taken is kept aside with its reason."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import Engine
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from api.otlp_answers import Signal
from api.own_rows import own_only
from api.settings import ApiSettings
from api.tenancy import own_scope, require_all_tenants
from core.ports import EventLog, LogBatch
from core.scopes import Scope
from core.usage import Deployment, TenantPath
from core.windows import Window
from ingest.otlp import decode, decode_json
from ingest.otlp.access_logs import is_wanted
from ingest.otlp.conventions import conventions
from ingest.otlp.genai_events import log_rows
from ingest.otlp.genai_metrics import append_counters, counter_lines
from ingest.otlp.genai_spans import span_rows
from ingest.otlp.items import Point
from ingest.otlp.spans_before import SpansBefore
from ingest.usage.rows import ParsedRow, Prepared, SourceOptions
from ingest.usage.service import UsageIngest, quarantine_line, reason
from models.access_repo import Principal
from models.database import transaction
from models.rates_repo import read_services

POOLS_KEPT_S = 30.0
REASONS_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Outcome:
    """``counted`` were new; ``passed_over`` told nothing about models or what was told already."""

    counted: int
    passed_over: int
    rejected: int
    why: str = ""


class Pools:
    """Which deployment serves a model or stands behind an address: the inventory's, read again every half minute. A model that
    two deployments serve names none."""

    def __init__(self, engine: Engine, now: Callable[[], datetime], clock: Callable[[], float] = time.monotonic) -> None:
        self._engine, self._now, self._clock = engine, now, clock
        self._lock = threading.Lock()
        self._read_at_s: float | None = None
        self._found: Mapping[str, Deployment] = {}

    def __call__(self) -> Mapping[str, Deployment]:
        with self._lock:
            if self._read_at_s is None:
                self._found, self._read_at_s = self._read(), self._clock()
            elif self._clock() - self._read_at_s > POOLS_KEPT_S:
                with suppress(OperationalError, InterfaceError, PoolTimeout):  # what was known last is better than a refusal
                    self._found = self._read()
                self._read_at_s = self._clock()
            return self._found

    def _read(self) -> dict[str, Deployment]:
        now = self._now()
        with transaction(self._engine) as connection:
            services = read_services(connection, Window(now - timedelta(minutes=1), now))
        named: dict[str, set[Deployment]] = {}
        for service in services:
            address = service.target.split("://")[-1].split("/")[0]
            for name in (service.deployment.model_id, address):
                named.setdefault(name, set()).add(service.deployment)
        return {name: deployments.pop() for name, deployments in named.items() if name and len(deployments) == 1}


@dataclass(frozen=True, slots=True)
class OtlpIntake:
    """Takes bodies of the three signals. Several threads may share one."""

    settings: ApiSettings
    log: EventLog
    ingest: UsageIngest
    pools: Pools
    now: Callable[[], datetime]
    before: SpansBefore = field(default_factory=SpansBefore)

    def take(self, signal: Signal, body: bytes, caller: Principal, *, as_json: bool) -> Outcome:
        """Returns when everything taken is durable. Raises BadInput (undecodable), TooManyItems, Unavailable (send it again)."""
        own = own_scope(caller)
        options, source = self._options(own), f"otlp:{caller.name}"
        reader, most = decode_json if as_json else decode, self.settings.max_records
        if signal == "metrics":
            require_all_tenants(caller, "what a gateway counted")
            return self._metrics(reader.points_of(body, most), options, source)
        if signal == "traces":
            spans = reader.spans_of(body, most)
            before = self.before if own is None else None  # a tenant's word must not take a gateway's call away
            rows = span_rows(spans, options, before)
            outcome = self._usage(rows, len(spans), own, source)
            if before is not None and not outcome.rejected:
                before.add(spans, [row.position for row in rows if isinstance(row, Prepared)], conventions())
            return outcome
        records = reader.logs_of(body, is_wanted, most)
        return self._usage(log_rows(records, options), len(records), own, source)

    def _usage(self, rows: Sequence[ParsedRow], items: int, own: Scope | None, source: str) -> Outcome:
        if not rows:
            return Outcome(0, items, 0)
        verdicts = self.ingest.accept(own_only(rows, own), source=source, within=own.parts if own else ())
        counts = Counter(verdict.verdict for verdict in verdicts)
        why = _summary(f"{v.field}: {v.reason}" for v in verdicts if v.verdict == "quarantined")
        rejected = counts["quarantined"]
        return Outcome(counts["accepted"], items - counts["accepted"] - rejected, rejected, why)

    def _metrics(self, found: tuple[Sequence[Point], int], options: SourceOptions, source: str) -> Outcome:
        points, others = found
        now = self.now()
        lines, bad = counter_lines(points, options, now)
        if bad:
            self.log.append("quarantine", LogBatch([quarantine_line(row, source, now) for row in bad]))
        append_counters(self.log, lines)
        passed_over = len(points) + others - len(lines) - len(bad)
        return Outcome(len(lines), passed_over, len(bad), _summary(f"{row.error.field}: {reason(row.error)}" for row in bad))

    def _options(self, own: Scope | None) -> SourceOptions:
        s = self.settings
        tenant = TenantPath(*own.parts) if own is not None else TenantPath(org=s.organisation)
        return SourceOptions(Deployment(s.default_cluster, s.default_namespace, ""), tenant, pools=self.pools())


def _summary(reasons: Iterable[str]) -> str:
    """The most frequent reasons with how often each was met."""
    counts = Counter(reasons)
    shown = [f"{text} ({count}x)" for text, count in counts.most_common(REASONS_SHOWN)]
    return " ".join(shown) + (" ..." if len(counts) > REASONS_SHOWN else "")
