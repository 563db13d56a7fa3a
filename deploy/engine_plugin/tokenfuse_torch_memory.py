"""What PyTorch reserved and allocated on each GPU of a vLLM engine, as two gauges on its own ``/metrics`` page.

vLLM loads general plugins (entry point group ``vllm.general_plugins``) in every process it makes, before that process works:
the API server, the engine core and each worker. Only the workers hold GPU memory, only the API server has the page. So each
process that has a GPU writes its two numbers to a small file every few seconds, and the page reads the files of live processes.
Where prometheus_client runs in multi-process mode (several API servers) it carries the gauges itself.

Standard library; torch and prometheus_client are the engine's own and are taken only where they are. Set TOKENFUSE_TORCH_DIR
where the default folder cannot be shared by the engine's processes. Reserved - allocated is memory PyTorch keeps and nobody
uses: its share of reserved is the fragmentation.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

EVERY_S = 5.0
RESERVED = "tokenfuse_torch_memory_reserved_bytes"
ALLOCATED = "tokenfuse_torch_memory_allocated_bytes"
ABOUT = {
    RESERVED: "Bytes PyTorch's caching allocator holds on the GPU",
    ALLOCATED: "Bytes of them that tensors use",
}
LABELS = ("device", "process")
Reading = dict[str, tuple[int, int]]
"""Device -> (reserved, allocated) bytes."""

_started = threading.Lock()


def register() -> None:
    """The plugin's entry point: called once in every process of the engine; a second call in a process does nothing."""
    if not _started.acquire(blocking=False):
        return
    folder = shared_folder()
    multiprocess = bool(os.environ.get("PROMETHEUS_MULTIPROC_DIR"))  # noqa: TID251 - runs inside the engine
    if not multiprocess:
        publish(folder)
    threading.Thread(target=_watch, args=(folder, multiprocess), name="tokenfuse-torch", daemon=True).start()


def shared_folder() -> Path:
    """One folder for the processes of one user on this host."""
    given = os.environ.get("TOKENFUSE_TORCH_DIR")  # noqa: TID251 - runs inside the engine
    return Path(given) if given else Path(tempfile.gettempdir()) / f"tokenfuse-torch-{os.getuid()}"


def read_devices(torch: ModuleType | Any) -> Reading:
    """Reserved and allocated bytes of every GPU this process uses; nothing before it uses one, for asking would start CUDA."""
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_available() or not cuda.is_initialized():
        return {}
    found = {str(n): (int(cuda.memory_reserved(n)), int(cuda.memory_allocated(n))) for n in range(cuda.device_count())}
    return {device: pair for device, pair in found.items() if pair[0]}


def write(folder: Path, reading: Reading) -> None:
    """This process's numbers, whole or not at all."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = folder / f".{os.getpid()}"
    fresh.write_text(json.dumps({"parent": os.getppid(), "devices": reading}))
    fresh.replace(folder / f"{os.getpid()}.json")


def read_live(folder: Path) -> Iterator[tuple[str, str, int, int]]:
    """(device, process, reserved, allocated) of live processes; files of dead ones are removed."""
    for file in sorted(folder.glob("*.json")):
        if not _alive(int(file.stem)):
            file.unlink(missing_ok=True)
            continue
        try:
            devices = json.loads(file.read_text())["devices"]
        except (OSError, ValueError, KeyError):
            continue
        for device, (reserved, allocated) in devices.items():
            yield device, file.stem, reserved, allocated


class Page:
    """What the API server's page shows: the newest numbers of every live process of the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import GaugeMetricFamily

        reserved = GaugeMetricFamily(RESERVED, ABOUT[RESERVED], labels=LABELS)
        allocated = GaugeMetricFamily(ALLOCATED, ABOUT[ALLOCATED], labels=LABELS)
        for device, process, held, used in read_live(self._folder):
            reserved.add_metric((device, process), held)
            allocated.add_metric((device, process), used)
        yield reserved
        yield allocated


def publish(folder: Path) -> None:
    """Put the two families on this process's page; a worker without prometheus_client has none."""
    try:
        from prometheus_client import REGISTRY
    except ImportError:
        return
    REGISTRY.register(Page(folder))


def _watch(folder: Path, multiprocess: bool) -> None:
    """Never an error of ours in the engine: what cannot be read or written is left out until the next turn."""
    gauges = _gauges() if multiprocess else None
    idle = threading.Event()
    while not idle.wait(EVERY_S):
        torch = sys.modules.get("torch")
        if torch is None:
            continue
        try:
            reading = read_devices(torch)
            if reading and gauges is not None:
                _set(gauges, reading)
            elif reading:
                write(folder, reading)
        except (OSError, RuntimeError):
            continue


def _gauges() -> dict[str, Any] | None:
    try:
        from prometheus_client import Gauge
    except ImportError:
        return None
    return {name: Gauge(name, about, ("device",), multiprocess_mode="livesum") for name, about in ABOUT.items()}


def _set(gauges: dict[str, Any], reading: Reading) -> None:
    for device, (reserved, allocated) in reading.items():
        gauges[RESERVED].labels(device).set(reserved)
        gauges[ALLOCATED].labels(device).set(allocated)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
