"""Records a second through the ingest boundary, by format: bytes -> validated rows (before the log), and with verdicts.

Run: python -m bench.ingest_validate [--records N]. Real bodies where there are any (TOKENFUSE_DATA), repeated under new ids.
Every record carries the full identity (8 keys) and 6 counts. Times are process time, best of three, so that a busy machine
disturbs them less; start-up is apart.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path

import orjson

from core.ports import Ack, EventLog, LogBatch, LogLine, Topic
from core.usage import Deployment
from eventlog.spool import SpoolLog, SpoolSettings
from ingest.usage.registry import ADAPTERS
from ingest.usage.rows import BadRow, SourceOptions
from ingest.usage.service import UsageIngest

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
OPTIONS = SourceOptions(deployment=Deployment("c", "n", "m"))


class NoLog:
    """Takes everything and keeps nothing: the boundary's own cost."""

    def append(self, topic: Topic, batch: LogBatch) -> Ack:
        return Ack(topic, "none", 0, len(batch.lines))

    def read(self, topic: Topic, after: str | None = None, limit: int = 10_000) -> Iterator[LogLine]:
        return iter(())

    def close(self) -> None:
        return None


def usage_body(records: int, *, raw: bool) -> bytes:
    """Our own records: the ordinary kind, or each with a provider's usage object."""
    return b"\n".join(orjson.dumps(_usage_item(number, raw=raw)) for number in range(records))


def _usage_item(number: int, *, raw: bool) -> dict[str, object]:
    started = NOW - timedelta(hours=1) + timedelta(milliseconds=number)
    counts = {"input_cache_read": 896, "input_cache_write_5m": 0, "input_cache_write_1h": 0, "output": 44, "output_reasoning": 0}
    item: dict[str, object] = {
        "schema": "usage/1", "request_id": f"chatcmpl-{number:016x}:generation", "started_at": started,
        "first_token_at": started + timedelta(seconds=1), "finished_at": started + timedelta(seconds=9),
        "deployment": {"cluster": "c", "namespace": "n", "model_id": f"m{number % 8}"},
        "tenant": {"org": "acme", "team": f"t{number % 200}", "project": "p", "user": f"u{number % 1000}", "key_id": "k"},
        "tokens": {"input_uncached": 120} | counts, "usage_source": "exact", "status": "ok", "service_tier": "P1",
        "http_status": 200, "finish_reason": "stop", "stream": True,
    }  # fmt: skip
    return item | {"raw": {"prompt_tokens": 1016, "completion_tokens": 44, "total_tokens": 1060}} if raw else item


def real_bodies(folder: Path, records: int) -> dict[str, bytes]:
    """Real rows by format, repeated to the wanted number (LiteLLM's under new ids)."""
    azure = (folder / "traces/azure_llm_2023/AzureLLMInferenceTrace_code.csv").read_bytes()
    mooncake = (folder / "traces/mooncake_fast25/conversation_trace_part1.jsonl").read_bytes().splitlines()
    payloads = [
        json.loads(line) for line in gzip.decompress((folder / "recordings/open/gateway.jsonl.gz").read_bytes()).splitlines()
    ]
    header, *rows = azure.splitlines()
    wanted = [payloads[number % len(payloads)] for number in range(min(records, 20_000))]
    again = (orjson.dumps(p | {"payload": p["payload"] | _new_ids(p["payload"], n)}) for n, p in enumerate(wanted))
    return {
        "azure-llm": b"\n".join([header, *(rows * (records // len(rows) + 1))[:records]]),
        "mooncake": b"\n".join((mooncake * (records // len(mooncake) + 1))[:records]),
        "litellm": b"\n".join(again),
    }


def _new_ids(payload: dict[str, str], number: int) -> dict[str, str]:
    """Ids of another call; a failure's own id is its call's."""
    return {name: f"{payload[name]}-{number}" for name in ("id", "litellm_call_id")}


def litellm_body(records: int) -> bytes:
    """LiteLLM payloads of the ordinary kind, 1.1 kB each: 200 teams x 8 models, every 20th call failed."""
    return b"\n".join(orjson.dumps(_litellm_item(number)) for number in range(records))


def _litellm_item(number: int) -> dict[str, object]:
    started, failed = 1796032800.0 + number / 1000, number % 20 == 19
    usage = {
        "prompt_tokens": 2006,
        "completion_tokens": 300,
        "total_tokens": 2306,
        "prompt_tokens_details": {"cached_tokens": 1920},
    }
    error = {"error_class": "InternalServerError", "error_code": "500", "llm_provider": "hosted_vllm"}
    return {
        "id": f"call-{number}" if failed else f"chatcmpl-{number:032x}", "litellm_call_id": f"call-{number}",
        "trace_id": f"trace-{number}", "call_type": "acompletion", "cache_hit": None, "stream": True,
        "status": "failure" if failed else "success", "custom_llm_provider": "hosted_vllm", "startTime": started,
        "endTime": started + 2.5, "completionStartTime": started + 0.25, "response_time": 2.5,
        "model": f"hosted_vllm/m{number % 8}", "model_id": f"{number % 8:064x}", "model_group": f"m{number % 8}",
        "api_base": "http://10.0.0.1:8000/v1", "end_user": "", "request_tags": ["org:acme", "User-Agent: OpenAI/Python 2.8.0"],
        "prompt_tokens": 0 if failed else 2006, "completion_tokens": 0 if failed else 300, "total_tokens": 0 if failed else 2306,
        "response_cost": 0.0, "error_information": error if failed else {"error_code": "", "error_class": ""},
        "model_parameters": {"temperature": 1.0, "n": 1, "stream": True, "max_tokens": 512},
        "metadata": {
            "user_api_key_hash": f"{number % 200:064x}", "user_api_key_alias": f"key {number % 200}",
            "user_api_key_team_alias": f"t{number % 200}", "user_api_key_user_id": f"u{number % 200}",
            "usage_object": {"prompt_tokens": 0, "completion_tokens": 0} if failed else usage,
        },
    }  # fmt: skip


def rate(work: Callable[[], int]) -> float:
    """Records per second of process time, best of three."""
    best = 0.0
    for _ in range(3):
        started = time.process_time()
        records = work()
        best = max(best, records / (time.process_time() - started))
    return best


def parse(format: str, body: bytes) -> int:
    rows = list(ADAPTERS[format].rows(io.BytesIO(body), OPTIONS))
    assert not any(isinstance(row, BadRow) for row in rows)
    return len(rows)


def judge(format: str, body: bytes, log: EventLog | None = None) -> int:
    ingest = UsageIngest(log or NoLog(), now=lambda: NOW, ensure_partitions=lambda _: None, archive_has=lambda _: set())
    found = ADAPTERS[format].rows(io.BytesIO(body), OPTIONS)
    count = 0
    while batch := list(islice(found, 10_000)):
        count += len(ingest.accept(batch))
    return count


def spool(format: str, body: bytes) -> int:
    """The same into the real log, fsynced in batches of 10,000."""
    with tempfile.TemporaryDirectory() as folder:
        settings = SpoolSettings(reserve_bytes=0, reserve_percent=0)
        log = SpoolLog(Path(folder) / "log", settings, now=lambda: datetime.now(UTC))
        try:
            return judge(format, body, log)
        finally:
            log.close()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--records", type=int, default=50_000)
    records = arguments.parse_args().records
    folder = Path(os.environ.get("TOKENFUSE_DATA", Path(__file__).parents[2] / "shared" / "data"))
    bodies = {"usage": usage_body(records, raw=False), "usage with raw": usage_body(records, raw=True)}
    bodies["litellm generated"] = litellm_body(records)
    if folder.is_dir():
        bodies |= real_bodies(folder, records)
    print(f"{'format':<16}{'records':>9}{'bytes/record':>14}{'validated/s':>14}{'judged/s':>12}{'in the spool/s':>16}")
    for name, body in bodies.items():
        format = name.split()[0]
        count = parse(format, body)
        validated, judged, spooled = (rate(partial(work, format, body)) for work in (parse, judge, spool))
        print(f"{name:<16}{count:>9}{len(body) // count:>14}{validated:>14,.0f}{judged:>12,.0f}{spooled:>16,.0f}")


if __name__ == "__main__":
    main()
