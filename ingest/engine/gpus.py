"""GPU exporters' series -> one sample per physical GPU and MIG instance, whatever number of pods each is listed for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.samples import Sample

from core.gpu import GpuSample
from core.ports import Page
from ingest.engine.names import Family, Source
from ingest.engine.origin import Origin
from ingest.engine.values import number, of_one_device

PODS = (("exported_namespace", "exported_pod"), ("namespace", "pod"), ("pod_namespace", "pod_name"))
"""How the workload's labels are spelled: behind a Prometheus without honorLabels, by the exporter, by its old flag."""
Fault = Callable[..., None]


@dataclass(slots=True)
class _Gpu:
    """The series of one (GPU, MIG instance) by name without prefix, and what its labels say."""

    series: dict[str, list[Sample]] = field(default_factory=lambda: defaultdict(list))
    pods: set[str] = field(default_factory=set)
    node: str = ""
    model: str = ""


def gpu_samples(page: Page, origin: Origin, found: Sequence[tuple[Family, str, Sample]], fault: Fault) -> list[GpuSample]:
    """``found`` are the page's series that a GPU family reads. A GPU without any identity becomes a fault."""
    samples: list[GpuSample] = []
    families = {family.name: family for family, _, _ in found}
    for name, family in sorted(families.items()):
        rows = [(bare, sample) for of, bare, sample in found if of.name == name]
        gpus, nameless = _by_gpu(rows, family)
        if nameless:
            fault("no_gpu_id", name, series=sorted(nameless), hint="the series have no UUID label")
        samples += [_sample(page, origin, family, key, gpu, fault) for key, gpu in sorted(gpus.items())]
    return samples


def _by_gpu(rows: Sequence[tuple[str, Sample]], family: Family) -> tuple[dict[tuple[str, str], _Gpu], set[str]]:
    device = {
        source.series for sources in (*family.counters.values(), *family.gauges.values()) for source in sources if source.device
    }
    moved = any("exported_pod" in sample.labels for _, sample in rows)
    gpus: dict[tuple[str, str], _Gpu] = defaultdict(_Gpu)
    nameless: set[str] = set()
    for bare, sample in rows:
        uuid, mig = family.label("gpu", sample.labels), family.label("mig", sample.labels)
        if not uuid:
            nameless.add(sample.name)
            continue
        gpu = gpus[uuid, "" if bare in device or mig in family.whole else mig]
        gpu.series[bare].append(sample)
        gpu.pods |= _pods(sample.labels, moved)
        gpu.node = gpu.node or family.label("node", sample.labels)
        gpu.model = gpu.model or family.label("gpu_model", sample.labels)
    return dict(gpus), nameless


def _pods(labels: Mapping[str, str], moved: bool) -> set[str]:
    """``namespace/pod`` of the workload. Where the server moved the workload's labels aside (``moved``), the plain ones are the
    exporter's own, also on the series of a GPU that no pod holds."""
    for space, pod in PODS[:1] if moved else PODS:
        if labels.get(pod):
            return {f"{labels.get(space, '')}/{labels[pod]}"}
    return set()


def _sample(page: Page, origin: Origin, family: Family, key: tuple[str, str], gpu: _Gpu, fault: Fault) -> GpuSample:
    uuid, mig = key

    def values(part: Mapping[str, Sequence[Source]]) -> dict[str, int]:
        known: dict[str, int] = {}
        for name, sources in part.items():
            value, problem = number(gpu.series, sources, family, of_one_device)
            if problem:
                fault("bad_value", f"{uuid}/{mig}/{name}", gpu=uuid, mig=mig, name=name, value=problem)
            if value is not None:
                known[name] = value
        return known

    return GpuSample(
        target=page.target,
        gpu=uuid,
        at=page.at,
        mig=mig,
        cluster=origin.cluster,
        node=origin.node or gpu.node,
        gpu_model=gpu.model,
        pods=tuple(sorted(gpu.pods)),
        watched_since=origin.watched_since,
        interval_ms=origin.interval_ms,
        counters=values(family.counters),
        gauges=values(family.gauges),
    )
