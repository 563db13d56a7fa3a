"""GPU deltas on a real database: three rollups, the quarter hours they touch, and the source a closed window names."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from money_rows import LATER, T0, WINDOW, D, a10g, engine_runs, service, use
from sqlalchemy import Engine, insert, text

from control.ledger_close import close_due, ledger_show
from core.engine_line import encode_gpu_line
from core.errors import BadInput
from core.gpu import GpuSample
from core.ports import LogBatch
from core.rates import Rate
from core.windows import Window, epoch_ms
from eventlog import manifest
from eventlog.archive import archive_segments
from eventlog.spool import SpoolLog, SpoolSettings
from models.efficiency_repo import efficiency_rows
from models.gpu_repo import gpu_rows
from models.ledger_repo import ledger_windows
from models.partitions import ensure_months
from models.rates_repo import add_rates, declare_service
from models.tables import GpuMinuteRow
from models.tables_gpu import GPU_MEASURES
from streaming.delta_columns import delta_folder, note_columns
from streaming.loader import Loader
from streaming.plan import DELTAS
from streaming.recompute import recompute

pytestmark = pytest.mark.db
MINUTE_US = 60_000_000


def gpu_runs(engine: Engine, share_ppm: int, minutes: int = 15, **sums: int) -> None:
    known = {
        "engine_active_us": MINUTE_US * share_ppm // 1_000_000, "engine_active_seen_us": MINUTE_US, "observed_us": MINUTE_US,
        "energy_uj": 24_000_000_000, "energy_seen_us": MINUTE_US, **sums,
    }  # fmt: skip
    key = {"cluster": D.cluster, "node": "node1", "gpu": "GPU-1", "mig": "", "gpu_model": "NVIDIA A10G", "pods": ""}
    with engine.begin() as connection:
        ensure_months(connection, [T0])
        rows = [{**key, "minute": T0 + timedelta(minutes=n), **known} for n in range(minutes)]
        connection.execute(insert(GpuMinuteRow), rows)


@pytest.fixture
def priced(db: Engine) -> Engine:
    """One A10G at 1.006 USD/h in service since 12:00, its engine running throughout, one tenant's request."""
    with db.begin() as connection:
        add_rates(connection, [a10g()], T0)
        declare_service(connection, service(), "test")
        use(connection)
        engine_runs(connection, busy_us=MINUTE_US)
    return db


def closed(engine: Engine) -> tuple[str, Decimal, dict[str, Decimal]]:
    report = close_due(engine, LATER)
    assert report.failures == []
    with engine.connect() as connection:
        [window] = ledger_windows(connection, WINDOW)
        rows = ledger_show(connection, WINDOW)
    assert [total["difference"] for total in rows["totals"]] == [Decimal(0)]
    return window["utilisation_source"], window["capacity_cost"], {row["kind"]: row["cost"] for row in rows["rows"]}


def test_a_window_takes_the_gpus_own_share_and_names_it(priced: Engine) -> None:
    gpu_runs(priced, 400_000)
    source, capacity, costs = closed(priced)
    assert (source, capacity) == ("GPU engine-active", Decimal("0.2515"))
    assert costs == {"served": Decimal("0.1006"), "idle": Decimal("0.1509")}


def test_without_an_exporter_nothing_changes(priced: Engine) -> None:
    assert closed(priced)[0] == "share of time with running > 0"


def test_energy_of_an_own_rack_is_in_the_capacity_cost_and_in_the_lines(priced: Engine) -> None:
    """15 minutes at 400 W are 0.1 kWh."""
    with priced.begin() as connection:
        add_rates(connection, [Rate("kwh", "node1", a10g("0.30").price, "list", "own rack", T0 - timedelta(days=1))], T0)
    gpu_runs(priced, 1_000_000)
    _, capacity, costs = closed(priced)
    assert capacity == Decimal("0.2515") + Decimal("0.03")
    assert sum(costs.values()) == capacity


def test_gpu_rollups_come_back_from_the_raw_archive(db: Engine, tmp_path: Path) -> None:
    start = T0 - timedelta(days=1)
    made = [
        GpuSample(
            "http://dcgm", "GPU-1", start + timedelta(seconds=15 * n), "", "lab", "node1", "A10G", ("prod/a,b",), None, 15_000,
            {"energy_uj": 10 * n}, {"util_ppm": 500_000},
        )
        for n in range(9)
    ]  # fmt: skip
    log = SpoolLog(tmp_path / "log", SpoolSettings(reserve_bytes=1, reserve_percent=0), lambda: T0)
    log.append("engine", LogBatch([encode_gpu_line(one) for one in made]))
    log.flush()
    log.close()
    names = [found.segment for found in manifest.segments(tmp_path / "log", "engine", "000001")]
    archive_segments(tmp_path, "engine", "000001", names)
    for _ in range(2):
        recompute(db, tmp_path, start.date(), T0)
        with db.connect() as connection:
            for unit in ("minute", "hour", "day"):
                query = text(
                    f"SELECT pods, sum(energy_uj)::int, sum(util_us)::int, sum(samples)::int FROM gpu_{unit} GROUP BY pods"
                )
                assert connection.execute(query).all() == [("prod/a,b", 80, MINUTE_US, 9)]


def rows_of(engine: Engine, by: tuple[str, ...], window: Window = WINDOW) -> list[dict[str, object]]:
    with engine.connect() as connection:
        return gpu_rows(connection, by, window)


def test_what_gpus_did_by_any_keys(db: Engine) -> None:
    gpu_runs(db, 400_000, power_uj=1, power_seen_us=1)
    [row] = rows_of(db, ("node", "gpu"))
    assert row == {
        "node": "node1", "gpu": "GPU-1", "gpus": 1, "observed_hours": Decimal("0.25"), "engine_active_share": Decimal("0.4"),
        "sm_active_share": None, "util_share": None, "memory_share": None, "energy_kwh": Decimal("0.1"), "power_w": Decimal(400),
        "resets": 0,
    }  # fmt: skip
    assert [row["gpus"] for row in rows_of(db, ("minute",))] == [1] * 15
    assert [row["hour"] for row in rows_of(db, ("hour", "pods"))] == [T0]
    assert rows_of(db, ()) == [{key: value for key, value in row.items() if key not in ("node", "gpu")}]
    assert rows_of(db, (), Window(T0 - timedelta(hours=2), T0)) == []


@pytest.mark.parametrize("by", [("tenant",), ("gpu", "gpu"), ("hour", "day")])
def test_a_key_that_is_none_is_named(db: Engine, by: tuple[str, ...]) -> None:
    with pytest.raises(BadInput, match="key of GPUs"):
        rows_of(db, by)


@pytest.mark.parametrize("step", ["hour", "minute", None])
def test_memory_and_power_stand_beside_a_deployments_engines(priced: Engine, step: str | None) -> None:
    memory = {"memory_used_mib_us": 18 * MINUTE_US, "memory_total_mib_us": 24 * MINUTE_US, "memory_seen_us": MINUTE_US}
    gpu_runs(priced, 400_000, **memory)
    with priced.connect() as connection:
        rows = efficiency_rows(connection, step, WINDOW)
    assert {(row["memory_share"], row["power_w"]) for row in rows} == {(Decimal("0.75"), Decimal(400))}


def gpu_delta(folder: Path, name: str, minute_ms: int, node: str, value: int) -> None:
    note_columns(folder / "deltas", DELTAS)
    keys = ["lab", node, "GPU-1", "", "A10G", ""]
    line = ",".join([str(minute_ms), *keys, *(str(value) for _ in GPU_MEASURES)])
    (delta_folder(folder / "deltas", "gpu", DELTAS["gpu"]) / f"part-{name}").write_text(line + "\n")


def test_deltas_are_added_once_to_minute_hour_and_day_and_mark_the_nodes_quarter_hours(priced: Engine, tmp_path: Path) -> None:
    close_due(priced, LATER)
    loader = Loader(priced, tmp_path / "deltas", lambda: LATER)
    for name, minute, node, value in (("a", 0, "node1", 5), ("b", 1, "node1", -2), ("c", 0, "node9", 7)):
        gpu_delta(tmp_path, name, epoch_ms(T0) + minute * 60_000, node, value)
    assert loader.run_once() == 3
    assert loader.run_once() == 0
    with priced.connect() as connection:
        for unit in ("minute", "hour", "day"):
            query = text(f"SELECT node, sum(energy_uj)::bigint FROM gpu_{unit} GROUP BY node ORDER BY node")
            assert connection.execute(query).all() == [("node1", 3), ("node9", 7)]
        dirty = connection.execute(text("SELECT model_id, window_start FROM dirty_window")).all()
    assert dirty == [(D.model_id, T0)], "the node without a service has no window"
