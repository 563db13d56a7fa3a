"""An engine or GPU sample as one CSV line of the ``engine`` topic, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime

from core.engine import COUNTERS, GAUGES, LINE_COLUMNS, EngineKey, EngineSample
from core.errors import BadRecord
from core.gpu import GPU_COUNTERS, GPU_GAUGES, GpuSample
from core.usage import Deployment
from core.windows import epoch_ms, from_epoch_ms

MAX_VALUE = 2**62
"""No counter or gauge is larger: a sentinel such as 9223372036854775794 must not reach the log."""


def sample_id(key: EngineKey, at_ms: int) -> str:
    return f"{key.target}|{key.engine}|{key.model_id}|{at_ms}"


def encode_line(sample: EngineSample) -> str:
    """One CSV line of ``LINE_COLUMNS`` without its line break.

    Raises BadRecord when a name holds a control character, or a value is negative, not whole or beyond 2**62.
    """
    key, at_ms = sample.key, epoch_ms(sample.at)
    payload = {
        "p": _ms(sample.process_started_at),
        "b": _ms(sample.created_at),
        "w": _ms(sample.watched_since),
        "i": sample.interval_ms,
        "c": _checked(sample.counters, COUNTERS, "counters"),
        "g": _checked(sample.gauges, GAUGES, "gauges"),
    }
    d = sample.deployment
    return _line(
        (sample_id(key, at_ms), key.target, key.engine, d.cluster, d.namespace, key.model_id, sample.node, str(at_ms)), payload
    )


def encode_gpu_line(sample: GpuSample) -> str:
    """One CSV line of ``LINE_COLUMNS`` of a GPU: ``engine`` is UUID/MIG id, namespace and model id are empty, and the payload is
    ``{"k": "gpu", "m": GPU model, "d": [namespace/pod, …], "w", "i", "c", "g"}``. Raises BadRecord as ``encode_line``."""
    key, at_ms = sample.key, epoch_ms(sample.at)
    if "/" in sample.mig or not sample.gpu:
        raise BadRecord("a GPU needs a UUID, and a MIG id has no slash", field="gpu", value=key.engine)
    payload = {
        "k": "gpu",
        "m": sample.gpu_model,
        "d": list(sample.pods),
        "w": _ms(sample.watched_since),
        "i": sample.interval_ms,
        "c": _checked(sample.counters, GPU_COUNTERS, "counters"),
        "g": _checked(sample.gauges, GPU_GAUGES, "gauges"),
    }
    return _line((sample_id(key, at_ms), key.target, key.engine, sample.cluster, "", "", sample.node, str(at_ms)), payload)


def _line(fields: Sequence[str], payload: Mapping[str, object]) -> str:
    for name, text in zip(LINE_COLUMNS, fields, strict=False):
        if not text.isprintable():
            raise BadRecord("holds a control character", field=name, value=text)
    return ",".join([*map(_quoted, fields), _quoted(json.dumps(payload, separators=(",", ":")))])


def is_gpu_line(fields: Sequence[str]) -> bool:
    """Whether the line is of a GPU (``parse_gpu_line``) and not of an engine (``parse_line``)."""
    return fields[len(LINE_COLUMNS) - 1].startswith('{"k":"gpu",')


def parse_gpu_line(fields: Sequence[str]) -> GpuSample:
    """The inverse of ``encode_gpu_line``, as ``parse_line`` is of ``encode_line``."""
    _id, target, engine, cluster, _namespace, _model, node, at_text, payload = fields[: len(LINE_COLUMNS)]
    gpu, _, mig = engine.rpartition("/")
    try:
        body = json.loads(payload)
        interval = body.get("i")
        return GpuSample(
            target=target,
            gpu=gpu,
            at=from_epoch_ms(int(at_text)),
            mig=mig,
            cluster=cluster,
            node=node,
            gpu_model=str(body["m"]),
            pods=tuple(str(pod) for pod in body["d"]),
            watched_since=_time(body.get("w")),
            interval_ms=None if interval is None else int(interval),
            counters=_checked(body.get("c") or {}, GPU_COUNTERS, "counters"),
            gauges=_checked(body.get("g") or {}, GPU_GAUGES, "gauges"),
        )
    except (ValueError, TypeError, OverflowError, KeyError, AttributeError, RecursionError) as error:
        raise BadRecord(f"not a GPU line: {error}", field="payload", value=payload) from error


def parse_line(fields: Sequence[str]) -> EngineSample:
    """The sample of a line already split into ``LINE_COLUMNS`` (further columns, such as the segment, are ignored).

    ``info`` is not part of the line. Raises BadRecord naming the field.
    """
    if len(fields) < len(LINE_COLUMNS):
        raise BadRecord(f"engine line has {len(fields)} fields, expected {len(LINE_COLUMNS)}", field="line")
    _id, target, engine, cluster, namespace, model_id, node, at_text, payload = fields[: len(LINE_COLUMNS)]
    try:
        at, body = from_epoch_ms(int(at_text)), json.loads(payload)
        if not isinstance(body, dict):
            raise TypeError("payload is not an object")
        interval = body.get("i")
        return EngineSample(
            key=EngineKey(target, engine, model_id),
            at=at,
            deployment=Deployment(cluster, namespace, model_id),
            node=node,
            process_started_at=_time(body.get("p")),
            created_at=_time(body.get("b")),
            watched_since=_time(body.get("w")),
            interval_ms=None if interval is None else int(interval),
            counters=_checked(body.get("c") or {}, COUNTERS, "counters"),
            gauges=_checked(body.get("g") or {}, GAUGES, "gauges"),
        )
    except (ValueError, TypeError, OverflowError, AttributeError, RecursionError) as error:
        raise BadRecord(f"not an engine line: {error}", field="payload", value=payload) from error


def _checked(values: Mapping[str, int], known: Sequence[str], where: str) -> dict[str, int]:
    for name, value in values.items():
        if name not in known:
            raise BadRecord("is not a canonical name", field=f"{where}.{name}", value=value)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_VALUE:
            raise BadRecord("must be a whole number from 0 to 2**62", field=f"{where}.{name}", value=value)
    return dict(values)


def _ms(at: datetime | None) -> int | None:
    return None if at is None else epoch_ms(at)


def _time(ms: int | None) -> datetime | None:
    return None if ms is None else from_epoch_ms(int(ms))


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if "," in text or '"' in text else text
