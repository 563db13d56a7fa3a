"""What identity rules cost at the ingest boundary, per record: the mapping alone, and the whole boundary with and without rules.

Run: python -m bench.identity_map [--records N]. Answers are remembered after the first round, as they are in a running process.
Times are process time, best of five, so that a busy machine disturbs them less.
"""

from __future__ import annotations

import argparse
import io
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import Any

from bench.ingest_validate import NOW, NoLog, usage_body
from core.identity import RuleVersion
from core.identity_codec import decode_rules
from core.identity_state import IdentityState
from ingest.usage.identity_map import IdentityMapper
from ingest.usage.registry import ADAPTERS
from ingest.usage.rows import ParsedRow, SourceOptions
from ingest.usage.service import UsageIngest


def one_rule(*when: tuple[str, str, str]) -> dict[str, Any]:
    conditions = [{"field": name, "op": operator, "value": value} for name, operator, value in when]
    return {"rules": [{"name": "x", "when": conditions, "set": {"project": "moved", "service_tier": "P2"}}]}


CASES: dict[str, dict[str, Any] | None] = {
    "no rules": None,
    "nothing matches, by team": one_rule(("team", "prefix", "zz")),
    "nothing matches, by model and tag": one_rule(("requested_model", "exact", "zz"), ("tag", "exact", "b")),
    "every record moves": one_rule(("team", "regex", r"t(\d+)")),
}


def mapper_of(rules: dict[str, Any] | None) -> IdentityMapper:
    since = NOW - timedelta(days=30)
    versions = () if rules is None else (RuleVersion(1, since, "bench", "bench", since, decode_rules(rules)),)
    return IdentityMapper(lambda held: None if held else IdentityState("1", versions), time.monotonic)


def best_s(work: Callable[[], object]) -> float:
    """Process seconds, best of five."""
    found = []
    for _ in range(5):
        started = time.process_time()
        work()
        found.append(time.process_time() - started)
    return min(found)


def boundary(body: bytes, mapper: IdentityMapper) -> None:
    """Bytes to verdicts, without a log."""
    ingest = UsageIngest(NoLog(), now=lambda: NOW, ensure_partitions=lambda _: None, archive_has=lambda _: set(), identity=mapper)
    rows = ADAPTERS["usage"].rows(io.BytesIO(body), SourceOptions())
    while batch := list(islice(rows, 10_000)):
        ingest.accept(batch)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--records", type=int, default=50_000)
    records = arguments.parse_args().records
    print(f"{'rules':<36}{'raw':>5}{'mapping µs/record':>20}{'boundary records/s':>20}")
    for has_raw in (False, True):
        body = usage_body(records, raw=has_raw)
        rows: list[ParsedRow] = list(ADAPTERS["usage"].rows(io.BytesIO(body), SourceOptions()))
        for name, rules in CASES.items():
            mapper = mapper_of(rules)
            mapping = best_s(partial(mapper.apply, rows)) / records * 1e6
            whole = records / best_s(partial(boundary, body, mapper))
            print(f"{name:<36}{'yes' if has_raw else 'no':>5}{mapping:>20.2f}{whole:>20,.0f}")


if __name__ == "__main__":
    main()
