"""Samples at chosen times into a real Prometheus, by its remote-write protocol (protobuf in snappy, both written by hand)."""

from __future__ import annotations

import struct
import urllib.request
from collections.abc import Iterable, Mapping

STALE = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0]
"""The value that ends a series."""
Row = tuple[Mapping[str, str], Iterable[tuple[int, float]]]
"""Labels (``__name__`` too) and (unix ms, value)."""


def write(url: str, rows: Iterable[Row]) -> None:
    body = b"".join(_field(1, _series(labels, points)) for labels, points in rows)
    headers = {
        "Content-Type": "application/x-protobuf",
        "Content-Encoding": "snappy",
        "X-Prometheus-Remote-Write-Version": "0.1.0",
    }
    request = urllib.request.Request(f"{url}/api/v1/write", data=_snappy(body), headers=headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.status in (200, 204)


def _series(labels: Mapping[str, str], points: Iterable[tuple[int, float]]) -> bytes:
    told = b"".join(_field(1, _field(1, k.encode()) + _field(2, v.encode())) for k, v in sorted(labels.items()))
    return told + b"".join(_field(2, b"\x09" + struct.pack("<d", value) + b"\x10" + _varint(at)) for at, value in points)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(found) + bytes([value])


def _snappy(body: bytes) -> bytes:
    """A snappy block of literals only."""
    parts = [body[i : i + 60_000] for i in range(0, len(body), 60_000)]
    return _varint(len(body)) + b"".join(b"\xf4" + struct.pack("<H", len(part) - 1) + part for part in parts)
