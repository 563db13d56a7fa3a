"""Puts the demo's data where real data would come in: through the same ingest, log and stream."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

from cli.demo.engines import Engine
from cli.demo.gateway import write_credentials
from cli.demo.history import CHAT_POOL, LONG_POOL, Month, requests
from cli.guards import add_guard
from cli.settings import Settings
from cli.wiring import database_url, event_log, guard_keys_file, ready_database, usage_ingest, utc_now
from control.budgets import set_budget, set_limit
from core.capacity import NodeService
from core.engine import EngineSample
from core.engine_line import encode_line
from core.ports import LogBatch
from core.usage import Deployment, TenantPath
from core.windows import QUARTER_HOUR, Window, floor_time
from eventlog.spool import SpoolLog
from ingest.engine.parse import Origin
from ingest.engine.replay import replay_folder
from ingest.engine.service import full_record
from ingest.usage.litellm import LiteLlm
from ingest.usage.rows import SourceOptions
from models.access_repo import create_token
from models.database import transaction
from models.partitions import PartitionKeeper
from models.rates_repo import declare_service

RECORDING = Path(__file__).parent / "recording"
RECORDED_AT = 1_796_039_141.284102248
RECORDED_FOR = timedelta(minutes=19)
TINY_POOL = Deployment("demo", "inference", "deepseek-tiny")
MARK = "demo.json"


@dataclass(frozen=True, slots=True)
class Demo:
    """Where in time the demo lies: the recording is moved by whole quarter hours to end just before the first start."""

    shift: timedelta
    recording_from: datetime
    days: int

    @property
    def history(self) -> Window:
        """The generated time before the recording."""
        return Window(history_start(self.recording_from, self.days), self.recording_from)


@dataclass(frozen=True, slots=True)
class DemoReport:
    what: str
    requests: int
    samples: int


def prepare(settings: Settings, days: int) -> Demo | None:
    """Inventory, budgets and a reader's token of a new demo folder; None when it was loaded before.

    Loading that was cut short starts again at the same place in time, with the ``days`` it had: what is there counts once.
    """
    run_dir = settings.data_dir / "run"
    run_dir.mkdir(parents=True, exist_ok=True)
    now = utc_now()
    recorded = datetime.fromtimestamp(RECORDED_AT, tz=now.tzinfo)
    if (run_dir / MARK).exists():
        mark = json.loads((run_dir / MARK).read_text())
        started = datetime.fromisoformat(mark["recording_from"])
        return None if mark["loaded"] else Demo(started - recorded, started, mark["days"])
    shift = floor_time(now - RECORDED_FOR, QUARTER_HOUR) - floor_time(recorded, QUARTER_HOUR)
    engine = ready_database(settings, database_url(settings))
    with transaction(engine) as connection:
        _inventory(connection, history_start(recorded + shift, days))
        _budgets(connection, settings, now)
        _, token = create_token(connection, "demo reader", ("read",), "", now)
        _, guard_token = create_token(connection, "demo-gateway", ("policy", "ingest"), "", now)
    engine.dispose()
    write_credentials(run_dir, "demo-gateway", guard_token, add_guard(guard_keys_file(settings), "demo-gateway"))
    file = run_dir / "demo-reader.token"
    file.touch(mode=0o600)
    file.write_text(token)
    demo = Demo(shift, recorded + shift, days)
    _mark(settings, demo, loaded=False)
    return demo


def mark_loaded(settings: Settings, demo: Demo) -> None:
    """Everything is in: it is not loaded again."""
    _mark(settings, demo, loaded=True)


def _mark(settings: Settings, demo: Demo, *, loaded: bool) -> None:
    mark = {"recording_from": demo.recording_from.isoformat(), "days": demo.days, "loaded": loaded}
    (settings.data_dir / "run" / MARK).write_text(json.dumps(mark))


def history_start(recording_from: datetime, days: int) -> datetime:
    """A whole hour, ``days`` before the recording."""
    return recording_from.replace(minute=0, second=0, microsecond=0) - timedelta(days=days)


def _inventory(connection: Any, since: datetime) -> None:
    for deployment, node, gpu, count in (
        (LONG_POOL, "gpu-a", "L40S", 2),
        (CHAT_POOL, "gpu-b", "A10G", 1),
        (TINY_POOL, "gpu-c", "A10G", 1),
    ):
        target = "recording" if deployment is TINY_POOL else f"http://{node}:8000/metrics"
        start = since if deployment is not TINY_POOL else utc_now() - timedelta(hours=1)
        declare_service(connection, NodeService(deployment, target, node, gpu, count, start), "demo")


def _budgets(connection: Any, settings: Settings, now: datetime) -> None:
    for scope, amount, cap in (
        ("tenant:demo", "8000", None),
        ("tenant:demo/contract-review", "120", "150"),
        ("tenant:demo/search-rag", "900", None),
        ("tenant:demo/agent-dev", "400", None),
    ):
        set_budget(
            connection, scope, "month", Decimal(amount), settings.currency, settings.zone, "demo", now,
            cap=Decimal(cap) if cap else None, owner="demo",
        )  # fmt: skip
    set_limit(connection, "tenant:demo/contract-review", "max_prompt_tokens", 32_768, "warn", "demo", now)


def load_recording(settings: Settings, demo: Demo) -> DemoReport:
    """The recording, moved in time; every count and difference is as it was recorded."""
    engine = ready_database(settings, database_url(settings))
    options = SourceOptions(deployment=TINY_POOL, tenant=TenantPath("demo"))
    with event_log(settings) as log, tempfile.TemporaryDirectory() as folder:
        rows = LiteLlm().rows(io.BytesIO(b"\n".join(_shifted_calls(demo.shift))), options)
        taken = len(usage_ingest(settings, engine, log).accept(rows, source="recording"))
        _unpack_pages(Path(folder), demo.shift)
        replayed = replay_folder(
            Path(folder), log, "recording", Origin("demo", "inference", "gpu-c", TINY_POOL.model_id),
            now=utc_now, ensure_partitions=PartitionKeeper(engine),
        )  # fmt: skip
    engine.dispose()
    return DemoReport("the recording", taken, replayed.samples)


def load_history(settings: Settings, demo: Demo) -> DemoReport:
    """The generated history, which ends where the recording begins."""
    month = Month(demo.history.start, demo.history.end)
    engines = [Engine(LONG_POOL, "gpu-a", month.start), Engine(CHAT_POOL, "gpu-b", month.start)]
    db = ready_database(settings, database_url(settings))
    keeper, taken, samples = PartitionKeeper(db), 0, 0
    with event_log(settings) as log:
        ingest = usage_ingest(settings, db, log)
        for hour in requests(month):
            taken += len(ingest.accept(hour, source="generated"))
            for engine in engines:
                engine.feed(record for record in hour if record.deployment == engine.deployment)
        keeper(month.start + timedelta(days=day) for day in range(demo.days + 1))
        for engine in engines:
            samples += _append_samples(log, engine.samples(month.end))
    db.dispose()
    return DemoReport("the generated history", taken, samples)


def _append_samples(log: SpoolLog, samples: Iterator[EngineSample]) -> int:
    count = 0
    while batch := list(islice(samples, 2000)):
        log.append("engine", LogBatch([encode_line(s) for s in batch], [full_record(s, (), "demo") for s in batch]))
        count += len(batch)
    return count


def _shifted_calls(shift: timedelta) -> Iterable[bytes]:
    seconds = shift.total_seconds()
    with gzip.open(RECORDING / "gateway.jsonl.gz", "rt") as lines:
        for line in lines:
            entry = json.loads(line)
            for name in ("startTime", "endTime", "completionStartTime"):
                if isinstance(entry["payload"].get(name), float):
                    entry["payload"][name] = round(entry["payload"][name] + seconds, 6)
            yield json.dumps(entry).encode()


def _unpack_pages(folder: Path, shift: timedelta) -> None:
    """Write the recorded pages with moved names and moved birth stamps (they must stay before the page's own time)."""
    with lzma.open(RECORDING / "pages.tar.xz") as packed, tarfile.open(fileobj=packed) as pages:
        for member in pages:
            stored = pages.extractfile(member)
            if stored is not None:
                at = Decimal(member.name.removesuffix(".prom")) + int(shift.total_seconds())
                (folder / f"{at}.prom").write_text(_moved_births(stored.read().decode(), shift))


def _moved_births(page: str, shift: timedelta) -> str:
    lines = []
    for line in page.splitlines():
        name, _, value = line.rpartition(" ")
        if not line.startswith("#") and ("_created" in name or name == "process_start_time_seconds"):
            line = f"{name} {float(value) + shift.total_seconds()!r}"
        lines.append(line)
    return "\n".join(lines) + "\n"
