"""What a Prometheus stored, by its own tool, and what it means by the rule for counters: nothing of ours is asked."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from prometheus_server import program

_LINE = re.compile(r"\{(.*)\} (\S+) (\d+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
Stored = dict[str, dict[int, dict[str, float]]]
"""instance -> scrape time (ms) -> series name -> value, for series of one engine"""


def dump(folder: Path, names: Iterable[str]) -> Stored:
    """Every stored sample of the named series."""
    wanted, found = set(names), defaultdict(lambda: defaultdict(dict))  # type: ignore[var-annotated]
    done = subprocess.run([str(program("promtool")), "tsdb", "dump", str(folder)], capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        labels = dict(_LABEL.findall(match[1]))
        if labels["__name__"] in wanted and match[2] != "NaN":  # a stale marker is shown as NaN
            found[labels["instance"] + labels.get("path", "")][int(match[3])][labels["__name__"]] = float(match[2])
    return {instance: {at: dict(values) for at, values in times.items()} for instance, times in found.items()}


def increase(times: dict[int, dict[str, float]], counter: str) -> int:
    """100, 150, restart, 10, 30 -> 80: a fall or a later process start counts from zero, the first sample is where we began."""
    total, last, started = 0, None, None
    for _at, values in sorted(times.items()):
        if counter not in values:
            continue
        value, start = int(values[counter]), values.get("process_start_time_seconds")
        if last is not None:
            restarted = value < last or (start is not None and started is not None and start > started + 1)
            total += value if restarted else value - last
        last, started = value, start
    return total
