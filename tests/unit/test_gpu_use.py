"""Which GPUs are a deployment's, which utilisation source its window gets, and what its own rack's energy costs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.capacity import NodeService, TargetTime, capacity_cost
from core.gpu_use import GPU_POWER, GpuTime, gpu_use, with_energy
from core.money import money
from core.rates import Rate
from core.tariff import parse_band
from core.time_split import split_time
from core.usage import Deployment
from core.windows import QUARTER_HOUR, Window

D, E = Deployment("c", "prod", "m"), Deployment("c", "dev", "other")
SAME_SPACE = Deployment("c", "prod", "other")
T0 = datetime(2026, 11, 30, 12, tzinfo=UTC)
WINDOW = Window(T0, T0 + QUARTER_HOUR)
US = 900_000_000
"""Microseconds of the window."""
RATES = [Rate("gpu_hour", "A10G", money("4", "USD"), "list", "card", T0 - timedelta(days=1))]


def service(deployment: Deployment = D, count: int = 1, node: str = "n1") -> NodeService:
    return NodeService(deployment, f"http://{deployment.model_id}", node, "A10G", count, T0 - timedelta(days=1))


def gpu(uuid: str = "GPU-1", pods: str = "", mig: str = "", node: str = "n1", **sums: int) -> GpuTime:
    return GpuTime("c", node, uuid, mig, pods, **sums)


ACTIVE = {"engine_active_us": US // 4, "engine_active_seen_us": US}


@pytest.mark.parametrize(
    ("what", "services", "rows", "told"),
    [
        ("no pods, nobody else on the node", [service()], [gpu(**ACTIVE)], True),
        ("no pods, two deployments on the node", [service(), service(E)], [gpu(**ACTIVE)], False),
        (
            "a pod of its namespace",
            [service(), service(E)],
            [gpu(pods="prod/a", **ACTIVE), gpu("GPU-2", "dev/b", **ACTIVE)],
            True,
        ),
        ("two deployments of one namespace", [service(), service(SAME_SPACE)], [gpu(pods="prod/a", **ACTIVE)], False),
        ("fewer GPUs than are paid for", [service(count=2)], [gpu(**ACTIVE)], False),
        ("more GPUs than are paid for", [service()], [gpu(**ACTIVE), gpu("GPU-2", **ACTIVE)], False),
        ("another node's GPU", [service()], [gpu(node="n2", **ACTIVE)], False),
        ("too many pods to be named", [service()], [gpu(pods="17 pods", **ACTIVE)], False),
        (
            "one GPU in rows of several pods",
            [service()],
            [gpu(pods="prod/a", **ACTIVE), gpu(pods="prod/a prod/b", **ACTIVE)],
            True,
        ),
        (
            "MIG instances are the units",
            [service(count=2)],
            [gpu(power_uj=1), gpu(mig="1", **ACTIVE), gpu(mig="2", **ACTIVE)],
            True,
        ),
    ],
)
def test_a_deployments_gpus_are_told_or_nothing_is_said(
    what: str, services: list[NodeService], rows: list[GpuTime], told: bool
) -> None:
    assert bool(gpu_use([services[0]], services, rows, WINDOW)) is told, what


def split(rows: list[GpuTime], times: list[TargetTime], *, gateway_busy_ppm: int = 0, worked: bool = True) -> tuple[str, Decimal]:
    capacity = capacity_cost(D, WINDOW, [service()], RATES)
    use = gpu_use([service()], [service()], rows, WINDOW)
    time = split_time(capacity, times, gateway_busy_ppm=gateway_busy_ppm, engine_worked=worked, gpus=use)
    assert time.used + time.idle + time.starting == capacity.amount == 1
    return time.utilisation_source, time.used


RUNNING = [TargetTime("http://m", US, US, 0)]
SM = {"sm_active_us": US // 10, "sm_active_seen_us": US}
UTIL = {"util_us": US // 3, "util_seen_us": US}


@pytest.mark.parametrize(
    ("what", "rows", "times", "source", "used"),
    [
        ("engine-active first", [gpu(**ACTIVE, **SM, **UTIL)], RUNNING, "GPU engine-active", "0.25"),
        ("then SM activity", [gpu(**SM, **UTIL)], RUNNING, "GPU SM activity", "0.1"),
        ("then running > 0, before utilisation", [gpu(**UTIL)], RUNNING, "share of time with running > 0", "1"),
        (
            "a share known for half of the time does not stand for it",
            [gpu(engine_active_us=1, engine_active_seen_us=US // 2)], RUNNING, "share of time with running > 0", "1",
        ),
        (
            "idle GPUs beside an engine that worked are not its GPUs",
            [gpu(engine_active_us=0, engine_active_seen_us=US)], RUNNING, "share of time with running > 0", "1",
        ),
        ("no engine seen, but tokens: what the GPUs did", [gpu(**UTIL)], [], "GPU utilisation (last resort)", "0.333333333333"),
        ("no GPU, no engine: the gateway's minutes", [], [], "minutes with gateway tokens (no engine observation)", "0.5"),
    ],
)  # fmt: skip
def test_the_order_of_utilisation_sources(
    what: str, rows: list[GpuTime], times: list[TargetTime], source: str, used: str
) -> None:
    assert split(rows, times, gateway_busy_ppm=500_000) == (source, Decimal(used)), what


def test_gpus_busy_with_no_engine_and_no_tokens_are_starting_not_used() -> None:
    assert split([gpu(**ACTIVE)], [], worked=False) == ("none: no engine seen", Decimal(0))


@given(st.integers(0, US), st.integers(0, US), st.integers(0, US))
def test_a_share_moves_used_against_idle_and_nothing_else(active_us: int, observed_us: int, busy_us: int) -> None:
    times = [TargetTime("http://m", observed_us, min(busy_us, observed_us), US - observed_us)]
    capacity = capacity_cost(D, WINDOW, [service()], RATES)
    use = gpu_use([service()], [service()], [gpu(engine_active_us=active_us, engine_active_seen_us=US)], WINDOW)
    without = split_time(capacity, times, gateway_busy_ppm=0, engine_worked=True)
    with_gpu = split_time(capacity, times, gateway_busy_ppm=0, engine_worked=True, gpus=use)
    assert with_gpu.starting == without.starting or not observed_us
    assert with_gpu.used + with_gpu.idle + with_gpu.starting == capacity.amount


# --- power --------------------------------------------------------------------------------------------------------

KWH = Rate("kwh", "n1", money("0.25", "USD"), "list", "tariff with PUE 1.3", T0 - timedelta(days=1))
ENERGY = {"energy_uj": 360_000_000_000, "energy_seen_us": US}
"""400 W for a quarter hour: 0.1 kWh."""


def priced(rows: list[GpuTime], rates: list[Rate]) -> tuple[Decimal | None, dict[str, object]]:
    use = gpu_use([service()], [service()], rows, WINDOW)
    capacity, note = with_energy(capacity_cost(D, WINDOW, [service()], rates), use, rates, WINDOW)
    return capacity.amount, note


@pytest.mark.parametrize(
    ("what", "rows", "kwh", "amount", "note"),
    [
        ("no tariff: not an own rack", [gpu(**ENERGY)], None, "1", None),
        ("measured energy times tariff", [gpu(**ENERGY)], KWH, "1.025", {"kwh": "0.1", "cost": "0.025"}),
        ("a tariff of the cluster", [gpu(**ENERGY)], replace(KWH, sku="c"), "1.025",
         {"kwh": "0.1", "cost": "0.025"}),
        ("power samples where there is no counter", [gpu(power_uj=360_000_000_000, power_seen_us=US)], KWH, "1.025",
         {"kwh": "0.1", "cost": "0.025"}),
        ("not measured: said, not guessed", [gpu(**ACTIVE)], KWH, "1", {"kwh": "0", "cost": "0", "not_measured_on": ["n1"]}),
        ("no exporter at all", [], KWH, "1", {"kwh": "0", "cost": "0", "not_measured_on": ["n1"]}),
    ],
)  # fmt: skip
def test_energy_of_own_racks(
    what: str, rows: list[GpuTime], kwh: Rate | None, amount: str, note: dict[str, object] | None
) -> None:
    found = priced(rows, [*RATES, *([kwh] if kwh else [])])
    whole = {"not_measured_on": [], "pue": ["none declared"], "measured": GPU_POWER, **note} if note else None
    assert found == (Decimal(amount), {"power": whole} if whole else {}), what


PUE = Rate("pue", "c", money("1.3", "XXX"), "effective", "measured 2026", T0 - timedelta(days=1))
BY_DAY = replace(KWH, price=money("0.50", "USD"), band=parse_band("all 00:00-24:00 UTC"))
BY_NIGHT = replace(BY_DAY, band=parse_band("all 22:00-06:00 UTC"))


@pytest.mark.parametrize(
    ("what", "rates", "amount", "said"),
    [
        ("kWh x tariff x PUE", [KWH, PUE], "1.0325", ""),
        ("a PUE of the node before its cluster's", [KWH, PUE, replace(PUE, sku="n1", price=money("2", "XXX"))], "1.05", ""),
        ("the band of the hour before the price of any hour", [BY_DAY, KWH], "1.05", ""),
        ("a PUE and no tariff: unknown, not zero", [PUE], None, "no list tariff (kwh) for the power of n1"),
        ("no band for this hour: unknown", [BY_NIGHT], None, "no list tariff (kwh) for the power of n1"),
        ("a tariff on another basis: unknown", [replace(KWH, charge_basis="billed")], None, "no list tariff (kwh)"),
        ("a tariff in another currency: unknown", [replace(KWH, price=money("0.25", "EUR"))], None, "is in EUR, the GPU-hours"),
        ("a tariff of another rack", [replace(KWH, sku="n2"), replace(PUE, sku="n2")], "1", ""),
    ],
)
def test_power_has_a_tariff_and_a_pue_or_is_unknown(what: str, rates: list[Rate], amount: str | None, said: str) -> None:
    use = gpu_use([service()], [service()], [gpu(**ENERGY)], WINDOW)
    found, _ = with_energy(capacity_cost(D, WINDOW, [service()], [*RATES, *rates]), use, [*RATES, *rates], WINDOW)
    assert found.amount == (Decimal(amount) if amount else None), what
    assert said in found.reason
