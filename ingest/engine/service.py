"""Metrics pages in, engine, GPU and fault lines in the event log out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from core.engine import SCHEMA, EngineSample
from core.engine_line import encode_gpu_line, encode_line, sample_id
from core.errors import BadInput, BadRecord
from core.gpu import GPU_SCHEMA, GpuSample
from core.ports import EventLog, LogBatch, Page
from core.windows import epoch_ms
from ingest.engine.families import CUT
from ingest.engine.faults import Fault, fault_line
from ingest.engine.memory import PageMemory
from ingest.engine.names import NameTable, name_table
from ingest.engine.parse import Origin, parse_page


@dataclass(frozen=True, slots=True)
class Taken:
    """What one call wrote; ``samples`` are of engines and GPUs, ``refused`` pages that could not be read, with the message."""

    samples: int = 0
    faults: int = 0
    refused: tuple[tuple[Page, str], ...] = ()


class EngineIngest:
    """Not shared between threads: it remembers each target's last page.

    ``ensure_partitions`` makes the rollup partitions that hold the given times, before anything is acknowledged.
    """

    def __init__(
        self,
        log: EventLog,
        now: Callable[[], datetime],
        ensure_partitions: Callable[[Iterable[datetime]], None],
        names: NameTable | None = None,
    ) -> None:
        self._log, self._now, self._ensure_partitions = log, now, ensure_partitions
        self._names = names or name_table()
        self._memory = PageMemory()

    def take(self, pages: Sequence[tuple[Page, Origin]], faults: Iterable[Fault] = ()) -> Taken:
        """Write the samples of ``pages`` (in order of time per target) and all faults; returns once they are durable.

        A page that cannot be read becomes a fault and adds no sample. Raises Unavailable when the log refuses.
        """
        samples: list[tuple[EngineSample | GpuSample, tuple[str, ...]]] = []
        found, refused = list(faults), []
        for page, origin in pages:
            try:
                parsed = parse_page(page, origin, self._names)
            except BadInput as error:
                kind = "page_cut_short" if error.message == CUT else "bad_page"
                found.append(Fault(kind, page.target, page.at, detail={"reason": str(error)}))  # type: ignore[arg-type]
                refused.append((page, str(error)))
                continue
            checked = self._memory.check(page.target, page.at, parsed)
            samples += [(engine, parsed.unmapped) for engine in checked.engines]
            samples += [(gpu, parsed.unmapped) for gpu in checked.gpus]
            found += [*parsed.faults, *checked.faults]
        lines, records, bad = self._encode(samples)
        self._append(lines, records, [sample.at for sample, _ in samples])
        return Taken(len(lines), self.report([*found, *bad]), tuple(refused))

    def report(self, faults: Iterable[Fault]) -> int:
        """Write faults (those of one kind, source, subject and minute once); returns how many."""
        noticed = self._now()
        unique = {fault.id: fault_line(fault, noticed) for fault in faults}
        if unique:
            self._log.append("fault", LogBatch(tuple(unique.values())))
        return len(unique)

    def _encode(
        self, samples: Iterable[tuple[EngineSample | GpuSample, tuple[str, ...]]]
    ) -> tuple[list[str], list[bytes], list[Fault]]:
        lines: list[str] = []
        records: list[bytes] = []
        bad: list[Fault] = []
        for sample, unmapped in samples:
            try:
                lines.append(encode_gpu_line(sample) if isinstance(sample, GpuSample) else encode_line(sample))
            except BadRecord as error:
                bad.append(Fault("bad_page", sample.key.target, sample.at, detail={"reason": str(error)}))
                continue
            if isinstance(sample, GpuSample):
                records.append(gpu_record(sample, unmapped, self._names.version("gpu")))
            else:
                records.append(full_record(sample, unmapped, self._names.version("engine")))
        return lines, records, bad

    def _append(self, lines: Sequence[str], records: Sequence[bytes], times: Sequence[datetime]) -> None:
        if lines:
            self._ensure_partitions(times)
            self._log.append("engine", LogBatch(lines, records))


def full_record(sample: EngineSample, unmapped: Sequence[str], name_table: str) -> bytes:
    """The whole canonical sample as one JSON object (schema ``engine/1``), for the archive. ``name_table``: files in force."""
    key, d = sample.key, sample.deployment
    body = {
        "schema": SCHEMA,
        "sample_id": sample_id(key, epoch_ms(sample.at)),
        "target": key.target,
        "engine": key.engine,
        "deployment": {"cluster": d.cluster, "namespace": d.namespace, "model_id": d.model_id},
        "node": sample.node,
        "at": sample.at.isoformat(),
        "process_started_at": _text(sample.process_started_at),
        "created_at": _text(sample.created_at),
        "watched_since": _text(sample.watched_since),
        "interval_ms": sample.interval_ms,
        "counters": dict(sample.counters),
        "gauges": dict(sample.gauges),
        "info": dict(sample.info),
        "unmapped": list(unmapped),
        "name_table": name_table,
    }
    return json.dumps(body, separators=(",", ":")).encode()


def gpu_record(sample: GpuSample, unmapped: Sequence[str], name_table: str) -> bytes:
    """The same of a GPU (schema ``gpu/1``): every pod by name, however many share it."""
    body = {
        "schema": GPU_SCHEMA,
        "sample_id": sample_id(sample.key, epoch_ms(sample.at)),
        "target": sample.target,
        "gpu": sample.gpu,
        "mig": sample.mig,
        "gpu_model": sample.gpu_model,
        "cluster": sample.cluster,
        "node": sample.node,
        "pods": list(sample.pods),
        "at": sample.at.isoformat(),
        "watched_since": _text(sample.watched_since),
        "interval_ms": sample.interval_ms,
        "counters": dict(sample.counters),
        "gauges": dict(sample.gauges),
        "unmapped": list(unmapped),
        "name_table": name_table,
    }
    return json.dumps(body, separators=(",", ":")).encode()


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()
