"""The stream as it is run: real log, real Flink, real database. What comes out is what ``core`` says, after any kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path

import psutil
import pytest
from sqlalchemy import Engine, text
from stream_world import (
    ROOT,
    World,
    expected_engine,
    expected_lengths,
    expected_minutes,
    now,
    random_lines,
    samples,
    with_duplicates,
)

from core.ports import LogBatch
from core.usage import encode_line
from models.database import open_engine, start_embedded, stop_embedded, upgrade
from streaming.recompute import recompute

pytestmark = [pytest.mark.flink, pytest.mark.db, pytest.mark.timeout(1_800)]


@pytest.fixture
def world(tmp_path: Path, db_url: str, db: Engine) -> Iterator[World]:
    made = World(tmp_path, db_url, db)
    yield made
    made.end()


@pytest.fixture
def own_world(tmp_path: Path) -> Iterator[World]:
    """A world whose database server is its own, to be killed."""
    tmp_path.chmod(0o755)
    url = start_embedded(tmp_path / "pg")
    upgrade(url)
    engine = open_engine(url)
    made = World(tmp_path, url, engine)
    yield made
    made.end()
    engine.dispose()
    stop_embedded(tmp_path / "pg")


def restart_killed_server(folder: Path) -> None:
    """kill -9 of the postmaster, then a start from another process, as ``up`` does it; its children end when they notice."""
    server = psutil.Process(int((folder / "postmaster.pid").read_text().split()[0]))
    family = [server, *server.children(recursive=True)]
    server.kill()
    psutil.wait_procs(family, timeout=60)
    program = "import sys, pathlib; from models.database import start_embedded; start_embedded(pathlib.Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", program, str(folder)], cwd=ROOT, check=True, timeout=120)


def test_kill_9_half_way_changes_no_row(own_world: World) -> None:
    world = own_world
    lines = random_lines(1, 3_000, scenario="# kill, 中")
    mixed = with_duplicates(lines, 2)
    scrapes = [samples("0", 300), samples("1", 300)]
    third = len(mixed) // 3
    world.append_usage(mixed[:third])
    world.append_engine(scrapes[0])
    run = world.start()
    world.wait(lambda: world.applied_lines() > 0, what="first lines applied")
    world.append_usage(mixed[third : 2 * third])
    world.append_engine(scrapes[1])
    restart_killed_server(world.data / "pg")
    so_far = world.applied_lines()
    world.wait(lambda: world.applied_lines() > so_far, what="the stream goes on with the database that came back")
    world.append_usage(mixed[2 * third :])
    os.killpg(run.pid, signal.SIGKILL)
    world.run_until_idle()

    assert world.minutes() == expected_minutes(lines)
    assert world.lengths() == expected_lengths(lines)
    assert world.engine_minutes() == expected_engine(s for engine in scrapes for s in engine)
    assert world.applied_lines() == len(mixed) + 600
    assert not list((world.data / "log/usage").glob("*/*.csv")), "consumed segments are in the archive"
    with world.db.begin() as connection:
        connection.execute(text("UPDATE usage_minute SET output = output + 1"))
        connection.execute(text("DELETE FROM usage_length_hour"))
        connection.execute(text("DELETE FROM engine_minute"))
    recompute(world.db, world.data, (now() - timedelta(days=1)).date(), now())
    assert world.minutes() == expected_minutes(lines), "the archive says the same as the stream"
    assert world.lengths() == expected_lengths(lines)
    assert world.engine_minutes() == expected_engine(s for engine in scrapes for s in engine)
    behind = world.rows("SELECT topic, catching_up, log_lines - read_lines FROM stream_state ORDER BY 1")
    assert behind == [("engine", False, 0), ("usage", False, 0)]


def open_to_others(group: int) -> list[tuple[str, int]]:
    """Addresses beyond this host on which a process of the group, or one it started, listens."""
    leader = psutil.Process(group)
    found = []
    for process in (leader, *leader.children(recursive=True)):
        for link in process.net_connections(kind="tcp"):
            if link.status == psutil.CONN_LISTEN and not ip_address(link.laddr.ip.removeprefix("::ffff:")).is_loopback:
                found.append((link.laddr.ip, link.laddr.port))
    return found


def test_no_port_is_open_to_others_and_the_folder_may_bear_any_name(tmp_path: Path, db_url: str, db: Engine) -> None:
    odd = tmp_path / "it's 100% ours"
    odd.mkdir()
    world = World(odd, db_url, db)
    lines, scrapes = random_lines(1, 200, scenario="odd"), samples("0", 40)
    world.append_usage(lines)
    world.append_engine(scrapes)
    run = world.start(until_idle=False)
    try:
        world.wait(lambda: world.applied_lines() == 240, what="every line is applied")
        assert open_to_others(run.pid) == []
        world.kill_job()
        world.append_usage(lines)
        world.wait(lambda: world.applied_lines() == 440, what="the job recovers")
    finally:
        world.end()
    assert world.minutes() == expected_minutes(lines)
    assert world.engine_minutes() == expected_engine(scrapes)


def test_a_rolled_epoch_counts_nothing_twice_while_a_slow_writer_finishes(world: World) -> None:
    first, second, third = (random_lines(i, 500, scenario=f"roll{i}") for i in range(3))
    world.settings = {"segments_per_epoch": 3}
    world.append_usage(first)
    slow = world.log(segment_age_s=3_600.0)
    slow.append("usage", LogBatch([encode_line(line) for line in second[:250]]))
    run = world.start(until_idle=False)
    world.wait(lambda: world.applied_lines() == 500, what="the visible lines are applied")
    assert not (world.data / "log/usage/000001/_SEALED").exists(), "a writer is still in the epoch"
    slow.close()
    world.wait((world.data / "log/usage/000001/_SEALED").exists, what="the epoch is sealed once its last writer left")
    world.append_usage(with_duplicates([*first, *second], 3), segments=1)
    world.wait(lambda: world.applied_lines() == 500 + 250 + 1_333, what="the next epoch is read")
    world.wait(lambda: world.minutes() == expected_minutes([*first, *second]), what="each id is counted once", timeout_s=60)

    world.kill_job()
    world.append_usage(third[:250], segments=1)
    world.wait(lambda: world.applied_lines() == 500 + 250 + 1_333 + 250, what="the job is started again")
    world.wait(lambda: world.minutes() == expected_minutes([*first, *second, *third[:250]]), what="nothing is lost", timeout_s=60)
    run.send_signal(signal.SIGTERM)
    assert run.wait(timeout=60) == 0


def test_a_changed_plan_counts_nothing_twice(world: World) -> None:
    first, second, third = (random_lines(i, 400, scenario=f"plan{i}") for i in range(3))
    scrapes = samples("0", 120)
    world.append_usage(first)
    world.append_engine(scrapes[:60])
    world.run_until_idle()

    world.settings = {"dedupe_horizon_days": 8}
    world.append_usage(with_duplicates([*first, *second], 4))
    world.append_engine(scrapes[60:90])
    world.run_until_idle()
    world.append_usage(with_duplicates([*second, *third], 5))
    world.append_engine(scrapes[90:])
    world.run_until_idle()

    assert json.loads((world.data / "checkpoints/plan.json").read_text())["state_ttl_ms"] == 8 * 86_400_000
    assert world.minutes() == expected_minutes([*first, *second, *third])
    assert world.lengths() == expected_lengths([*first, *second, *third])
    assert world.engine_minutes() == expected_engine(scrapes), "no interval is lost or counted twice"


def test_a_job_that_would_leave_state_behind_at_an_epoch_roll_does_not_start(world: World) -> None:
    """An epoch roll lets go of the old sources' state on purpose; of nothing else, or ids would be counted again."""
    lines = random_lines(1, 300, scenario="lost")
    world.append_usage(lines)
    world.append_engine(samples("0", 30))
    world.run_until_idle()
    (world.data / "run/flink-refusal.txt").unlink(missing_ok=True)

    spec = json.loads(max((world.data / "checkpoints").glob("*/job.json")).read_text())
    newest = max((world.data / "checkpoints").glob("*/*/chk-*/_metadata"), key=lambda path: path.stat().st_mtime_ns)
    spec["folders"] |= {"restore": f"file://{newest.parent}", "new_sources": True, "checkpoints": str(world.data / "other")}
    spec["plan"]["inserts"] = [insert for insert in spec["plan"]["inserts"] if not insert.startswith("INSERT INTO progress")]
    other = world.data / "other.json"
    other.write_text(json.dumps(spec))
    done = subprocess.run(
        [sys.executable, "-m", "streaming.jobs.main", str(other)], cwd=ROOT, timeout=300, check=False, start_new_session=True
    )
    assert done.returncode == 1
    told = (world.data / "run/flink-refusal.txt").read_text()
    assert "holds state of operators" in told
    assert str(newest.parent) in told
    assert not (world.data / "other").exists(), "nothing was written"

    world.append_usage(with_duplicates(lines, 6))
    world.run_until_idle()
    assert world.minutes() == expected_minutes(lines), "the checkpoint is as it was"
