"""The demo's ledger as a FOCUS export, read into an empty Tokenfuse: the totals are equal, to the last decimal."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tokenfuse_command import Tokenfuse

pytestmark = [pytest.mark.e2e, pytest.mark.flink]
LOAD = """
from pathlib import Path
import sys
from cli.demo.bill import load_bill
from cli.demo.load import load_history, load_recording, mark_loaded, prepare
from cli.settings import load
settings = load(data_dir=Path(sys.argv[1]))
demo = prepare(settings, 2)
load_recording(settings, demo)
load_history(settings, demo)
load_bill(settings, demo.history)
mark_loaded(settings, demo)
print(demo.history.start.isoformat(), demo.history.end.isoformat())
"""
"""What ``tokenfuse demo --days 2`` loads, without what it starts besides."""
Money = Mapping[tuple[str, str], Decimal]
"""By ORG/TEAM ('' for nobody's) and currency."""


@dataclass(frozen=True)
class Exported:
    """The demo's Tokenfuse, the export's folder, what the command said of it, and the time it covers."""

    demo: Tokenfuse
    folder: Path
    said: dict[str, Any]
    window: tuple[str, ...]


@pytest.fixture(scope="module")
def exported(tokenfuse: Tokenfuse) -> Exported:
    loaded = subprocess.run(
        [sys.executable, "-c", LOAD, str(tokenfuse.folder / "data")],
        env=tokenfuse.environment, capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    assert loaded.returncode == 0, loaded.stderr[-4000:]
    start, end = map(datetime.fromisoformat, loaded.stdout.split())
    until = end.replace(minute=0, second=0) + timedelta(hours=2)
    window = ("--from", f"{start:%Y-%m-%dT%H:00:00Z}", "--to", f"{until:%Y-%m-%dT%H:00:00Z}")
    tokenfuse.run("stream", "run", "--until-idle")
    tokenfuse.run("ledger", "close", "--no-grace")
    folder = tokenfuse.folder / "export"
    return Exported(tokenfuse, folder, tokenfuse.json("export", "focus", *window, "--out", str(folder)), window)


@pytest.fixture(scope="module")
def empty(exported: Exported) -> Iterator[Tokenfuse]:
    """Another Tokenfuse, which holds nothing but the export."""
    folder = Path(tempfile.mkdtemp(prefix="tf empty "))
    folder.chmod(0o755)
    command = Tokenfuse(folder)
    assert command.json("show", "bills") == []
    command.run("ingest", "bill", str(exported.folder), "--format", "focus")
    yield command
    command.run("down", timeout=120)
    shutil.rmtree(folder, ignore_errors=True)


def summed(rows: list[tuple[str, str, str]]) -> Money:
    found: defaultdict[tuple[str, str], Decimal] = defaultdict(Decimal)
    for account, currency, cost in rows:
        found[account, currency] += Decimal(cost)
    return {key: amount for key, amount in found.items() if amount}


def test_the_ledger_is_the_demos(exported: Exported) -> None:
    shown = exported.demo.json("ledger", "show", "--by", "deployment,kind", *exported.window)
    assert {row["deployment"].rpartition("/")[2] for row in shown["rows"]} == {"llama-3.1-8b", "qwen3-32b", "deepseek-tiny"}
    assert {"served", "idle", "unattributed"} <= {row["kind"] for row in shown["rows"]}
    assert (shown["unpriced"], [Decimal(one["difference"]) for one in shown["totals"]]) == ([], [0])


def test_every_tenants_total_comes_back(exported: Exported, empty: Tokenfuse) -> None:
    ledger = exported.demo.json("ledger", "show", "--by", "org,team", *exported.window)["rows"]
    charges = empty.json("show", "charges", "--by", "account")
    given = summed([("/".join(filter(None, (row["org"], row["team"]))), row["currency"], row["cost"]) for row in ledger])
    for basis in ("billed_cost", "effective_cost"):
        assert summed([(row["account"] or "", row["currency"], row[basis]) for row in charges]) == given
    assert len(given) > 5
    assert sum(given.values()) == sum(Decimal(one["effective"]) for one in exported.said["totals"])


def test_every_deployments_total_comes_back(exported: Exported, empty: Tokenfuse) -> None:
    ledger = exported.demo.json("ledger", "show", "--by", "deployment", *exported.window)["rows"]
    charges = empty.json("show", "charges", "--by", "resource_id")
    given = summed([(row["deployment"], row["currency"], row["cost"]) for row in ledger])
    assert summed([(row["resource_id"], row["currency"], row["effective_cost"]) for row in charges]) == given


def test_the_same_export_again_changes_nothing(exported: Exported, empty: Tokenfuse) -> None:
    before = empty.json("show", "charges")
    again = empty.json("ingest", "bill", str(exported.folder), "--format", "focus")
    assert ({one["status"] for one in again["imported"]}, again["refused"]) == ({"unchanged"}, [])
    assert empty.json("show", "charges") == before
