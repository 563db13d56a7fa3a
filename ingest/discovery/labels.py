"""From an address and its labels, as Prometheus writes them, to a target with its capacity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import httpx

from core.errors import BadInput
from core.ports import FoundTarget


@dataclass(frozen=True, slots=True)
class TargetDefaults:
    """What holds for every target of a source that does not say otherwise by a label of the same name."""

    gpu: str = ""
    count: int = 0
    node: str = ""
    cluster: str = "default"
    namespace: str = "default"
    model_id: str = ""


def target_of(address: str, labels: Mapping[str, str], defaults: TargetDefaults, where: str) -> FoundTarget:
    """``address`` is HOST:PORT or a URL; ``__scheme__`` and ``__metrics_path__`` complete it. The node defaults to the host; the
    label ``kind`` gpu makes it a GPU exporter, which is not paid for.

    Raises BadInput naming ``where`` for an address or a count that is none.
    """
    text = address if "://" in address else _completed(address, labels)
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise BadInput("is not an address", where=where, field="targets", value=address, hint="write HOST:PORT") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise BadInput("is not an http address", where=where, field="targets", value=address, hint="write HOST:PORT")
    is_exporter = labels.get("kind") == "gpu"
    return FoundTarget(
        url=text,
        gpu="" if is_exporter else labels.get("gpu", defaults.gpu),
        count=0 if is_exporter else _count(labels, defaults, where),
        node=labels.get("node") or defaults.node or url.host,
        cluster=labels.get("cluster", defaults.cluster),
        namespace=labels.get("namespace", defaults.namespace),
        model_id=labels.get("model_id", defaults.model_id),
        kind="gpu" if is_exporter else "engine",
    )


def _completed(address: str, labels: Mapping[str, str]) -> str:
    path = labels.get("__metrics_path__", "/metrics")
    return f"{labels.get('__scheme__', 'http')}://{address}/{path.lstrip('/')}"


def _count(labels: Mapping[str, str], defaults: TargetDefaults, where: str) -> int:
    text = labels.get("count")
    if text is None:
        return defaults.count
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 100_000):
        raise BadInput("must be a whole number from 1", where=where, field="labels.count", value=text, hint="how many GPUs")
    return int(text)
