"""``make bench``: every bar of the design in one run, each beside a peer, with what the time went on.

``python -m bench [--quick] [--only NAME …] [--json] [--write]``. Nothing but the JSON goes to standard output under ``--json``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.figures import Row, as_markdown, as_text
from bench.machine import describe, sentence

ROWS = {
    "file": "bench.file_to_rollups",
    "stream": "bench.stream_part",
    "http": "bench.http_live",
    "otlp": "bench.otlp_accept",
    "formats": "bench.formats_part",
    "refusal": "bench.refusal",
    "guard": "bench.guard_part",
    "queries": "bench.queries",
    "spool": "bench.spool_part",
    "ledger": "bench.ledger_difference",
    "month": "bench.ledger_month",
    "scrape": "bench.scrape_map",
    "bills": "bench.bill_import",
    "detect": "bench.detect",
}
"""Each module's ``measure(*, quick)`` gives one row."""
PAGE = Path(__file__).parent.parent / "docs/bench-measured.md"
HEAD = """# The last whole run of `make bench`

Written by `python -m bench --write`; what the rows mean and what was tried is in [bench.md](bench.md). Figures are of steady
state after a warm-up; start-up is apart. A ratio says how many times better the peer did in the same run (below 1: worse).
Verdicts: *goal* and *floor* are reached, *BELOW FLOOR* is not, *shown* has no bar. Sizes are full unless the load says quick.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """1 when a row is below its floor or could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes: does every row still run?")
    parser.add_argument("--only", action="append", choices=list(ROWS), help="this row (may be repeated)")
    parser.add_argument("--json", action="store_true", help="print JSON alone")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.parent.name}/{PAGE.name}")
    given = parser.parse_args(arguments)
    if given.write and (given.only or given.quick):
        parser.error("--write is for a whole run: leave --only and --quick out")
    signal.signal(signal.SIGTERM, _leave)
    machine = describe()
    rows, failed = _measured(given.only or list(ROWS), quick=given.quick)
    _show(machine, rows, failed, as_json=given.json)
    if given.write:
        PAGE.write_text(f"{HEAD}\nMachine: {sentence(machine)}.\n\n{as_markdown(rows)}{_failures(failed)}")
    below = any(figure.verdict == "BELOW FLOOR" for row in rows for figure in row.figures)
    return 1 if below or failed else 0


def _measured(names: Sequence[str], *, quick: bool) -> tuple[list[Row], dict[str, str]]:
    rows: list[Row] = []
    failed: dict[str, str] = {}
    for name in names:
        started = time.monotonic()
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        try:
            rows.append(importlib.import_module(ROWS[name]).measure(quick=quick))
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {error}"
            print(f"  not measured: {failed[name]}", file=sys.stderr)
        print(f"  {name} took {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    return rows, failed


def _leave(*_: object) -> None:
    """SIGTERM unwinds the row, so that its servers stop and its folder goes; a second one must not cut that short."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(128 + signal.SIGTERM)


def _show(machine: dict[str, Any], rows: Sequence[Row], failed: dict[str, str], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"machine": machine, "rows": [row.as_json() for row in rows], "not_measured": failed}, indent=1))
        return
    print(f"Machine: {sentence(machine)}")
    print(as_text(rows))
    print(_failures(failed), end="")


def _failures(failed: dict[str, str]) -> str:
    return "".join(f"\nNot measured: {name} ({why})\n" for name, why in failed.items())


if __name__ == "__main__":
    sys.exit(main())
