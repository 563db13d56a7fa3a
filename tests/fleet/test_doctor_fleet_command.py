"""``tokenfuse doctor fleet`` as people run it, and the round the scrape process keeps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fleet_servers import Server, litellm, vllm
from sqlalchemy import Engine

from cli.fleet_plan import EVERY_S, SOONER_S, check_fleet, keep_checking
from cli.settings import Settings, TargetSetting
from core.fleet_checks import CHECKS
from models.fleet_repo import read_findings

ROOT = Path(__file__).parents[2]
TARGET = '[[targets]]\nurl = "{url}/metrics"\ngpu = "A10G"\ncount = 1\nnode = "n"\n'
WELL = (
    "vllm serve chat --max-num-seqs 56 --max-num-batched-tokens 2048 --enable-prompt-tokens-details --enable-force-include-usage"
)


class _OneRound(threading.Event):
    """Is set by the first wait, whose length it remembers."""

    def __init__(self) -> None:
        super().__init__()
        self.waited_s: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waited_s.append(timeout)
        self.set()
        return True


Doctor = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def engine() -> Iterator[Server]:
    server = vllm()
    yield server
    server.close()


@pytest.fixture
def doctor(tmp_path: Path) -> Doctor:
    def run(settings: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        file = tmp_path / "tokenfuse.toml"
        file.write_text(settings)
        return subprocess.run(
            [sys.executable, "-m", "cli.main", "doctor", "fleet", "--data-dir", str(tmp_path / "data"), *arguments],
            capture_output=True, text=True, timeout=120, check=False, cwd=ROOT,
            env={**os.environ, "TOKENFUSE_SETTINGS": str(file)},
        )  # fmt: skip

    return run


def test_a_fleet_in_good_order_exits_0_and_prints_json_alone(doctor: Doctor, engine: Server, tmp_path: Path) -> None:
    (tmp_path / "engines.yaml").write_text(f"{engine.url}/metrics: {WELL}\n")
    told = doctor(TARGET.format(url=engine.url), "--json", "--args-file", str(tmp_path / "engines.yaml"))
    rows: list[dict[str, Any]] = json.loads(told.stdout)
    assert [(row["check"], row["reason"]) for row in rows if row["verdict"] != "pass"] == []
    assert (told.returncode, told.stderr) == (0, "")
    assert set(rows[0]) == {"subject", "kind", "check", "verdict", "seen", "where", "reason", "fix", "what", "why"}
    assert not (tmp_path / "data" / "pg").exists()


def test_unknown_is_no_fault(doctor: Doctor, engine: Server) -> None:
    told = doctor(TARGET.format(url=engine.url))
    assert told.returncode == 0
    assert "neither a pod nor --args-file tells them" in told.stdout
    assert "0 fail" in told.stdout


def test_a_fault_exits_1_and_shows_cost_and_fix(doctor: Doctor, engine: Server, tmp_path: Path) -> None:
    (tmp_path / "start.sh").write_text(f"{WELL} --enforce-eager --api-key sk-abcdefghijk\n")
    told = doctor(TARGET.format(url=engine.url), "--args-file", str(tmp_path / "start.sh"))
    assert told.returncode == 1
    assert f"costs: {CHECKS['enforce_eager'].why}" in told.stdout
    assert "→ take --enforce-eager out" in told.stdout
    assert "sk-abcdefghijk" not in told.stdout + told.stderr


def test_a_gateway_alone_is_checked_by_its_configuration_file_too(doctor: Doctor, tmp_path: Path) -> None:
    proxy = litellm("http://engine:8000/v1")
    (tmp_path / "config.yaml").write_text("general_settings: {always_include_stream_usage: true}\n")
    try:
        settings = f'litellm_url = "{proxy.url}"\nlitellm_key = "sk-admin"\n'
        told = doctor(settings, "--json", "--litellm-config", str(tmp_path / "config.yaml"))
    finally:
        proxy.close()
    verdicts = {row["check"]: row["verdict"] for row in json.loads(told.stdout)}
    assert (verdicts["always_include_stream_usage"], verdicts["hook"], told.returncode) == ("pass", "fail", 1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--args-file", "absent.yaml"), "absent.yaml"),
        (("--litellm-config", "absent.yaml"), "absent.yaml"),
    ],
)
def test_bad_input_exits_2_and_names_the_file(doctor: Doctor, arguments: tuple[str, ...], says: str) -> None:
    told = doctor("", *arguments)
    assert (told.returncode, says in told.stderr, told.stdout) == (2, True, "")


def test_with_nothing_to_check_it_says_what_to_name(doctor: Doctor) -> None:
    told = doctor("", "--json")
    assert (told.returncode, json.loads(told.stdout)) == (0, [])
    assert "name engines in [[targets]]" in told.stderr


@pytest.mark.db
def test_the_scrape_process_keeps_the_newest_round(db: Engine, engine: Server, tmp_path: Path) -> None:
    target = TargetSetting(url=f"{engine.url}/metrics", gpu="A10G", count=1, node="n")
    settings = Settings(data_dir=tmp_path, targets=(target,))
    findings = check_fleet(settings, db)
    with db.connect() as connection:
        kept, checked_at = read_findings(connection)
    assert (kept, checked_at is not None) == (findings, True)


@pytest.mark.db
def test_a_round_that_breaks_leaves_the_one_before_and_ends_nothing(db: Engine, engine: Server, tmp_path: Path) -> None:
    target = TargetSetting(url=f"{engine.url}/metrics", gpu="A10G", count=1, node="n")
    check_fleet(Settings(data_dir=tmp_path, targets=(target,)), db)
    stop = _OneRound()
    broken = Settings.model_validate({"data_dir": tmp_path, "discovery": [{"name": "pool", "kind": "file"}]})
    keep_checking(broken, db, stop)
    assert stop.waited_s == [SOONER_S]
    with db.connect() as connection:
        assert len(read_findings(connection)[0]) > 0
    again = _OneRound()
    keep_checking(Settings(data_dir=tmp_path, targets=(target,)), db, again)
    assert again.waited_s == [EVERY_S]
