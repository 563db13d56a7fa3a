"""Request bodies of the ingest routes: read with a limit, unpacked with a limit."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from starlette.requests import ClientDisconnect, Request

from api.errors import TooLarge, UnsupportedMedia
from core.errors import BadInput

JSON_TYPES = frozenset({"application/json", "text/json"})
NDJSON_TYPES = frozenset({"application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"})
SNIFFED_TYPES = frozenset({"", "application/octet-stream", "application/gzip", "application/x-gzip"})
MB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Raw:
    """A body as received, still packed."""

    data: bytes
    media_type: str
    encoding: str


async def receive(request: Request, max_mb: int) -> Raw:
    """The whole body of usage records, refused as soon as it passes ``max_mb`` (TooLarge)."""
    media_type = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if media_type not in JSON_TYPES | NDJSON_TYPES | SNIFFED_TYPES:
        raise UnsupportedMedia(
            "usage is taken as JSON", field="content-type", value=media_type, hint="send application/json or application/x-ndjson"
        )
    return await receive_any(request, max_mb, media_type)


async def receive_any(request: Request, max_mb: int, media_type: str) -> Raw:
    """The whole body, whatever it holds, refused as soon as it passes ``max_mb`` (TooLarge)."""
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > max_mb * MB:
        raise _too_large(max_mb)
    parts: list[bytes] = []
    size = 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > max_mb * MB:
                raise _too_large(max_mb)
            parts.append(chunk)
    except ClientDisconnect as gone:
        raise BadInput("the body was cut short", hint="send it again") from gone
    return Raw(b"".join(parts), media_type, request.headers.get("content-encoding", "").strip().lower())


def _too_large(max_mb: int) -> TooLarge:
    return TooLarge(f"the body is larger than {max_mb} MB", hint="send smaller batches, 500 records each work well")


def unpack(raw: Raw, max_mb: int) -> bytes:
    """The body's text, at most ``max_mb`` of it (TooLarge). An empty or torn body is BadInput."""
    text = unpack_any(raw, max_mb)
    if not text or text.isspace():
        raise BadInput("the body is empty", field="body", hint="send a JSON array or one JSON object a line")
    return text


def unpack_any(raw: Raw, max_mb: int) -> bytes:
    """The body's bytes, which may be none, at most ``max_mb`` of them (TooLarge). A torn body is BadInput."""
    packed = raw.encoding in {"gzip", "x-gzip"} or raw.data[:2] == b"\x1f\x8b"
    if raw.encoding not in {"", "identity", "gzip", "x-gzip"}:
        raise UnsupportedMedia("unknown packing", field="content-encoding", value=raw.encoding, hint="use gzip or none")
    text = _gunzip(raw.data, max_mb * MB) if packed else raw.data
    if len(text) > max_mb * MB:
        raise _too_large(max_mb)
    return text


def _gunzip(data: bytes, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while data:
        inflater = zlib.decompressobj(wbits=31)
        try:
            part = inflater.decompress(data, limit - size + 1)
        except zlib.error as error:
            raise BadInput("the gzip body is damaged", field="body", hint="send it again") from error
        size += len(part)
        if size > limit:
            raise TooLarge(f"the body unpacks to more than {limit // MB} MB", hint="send smaller batches")
        if not inflater.eof:
            raise BadInput("the gzip body is cut short", field="body", hint="send it again")
        parts.append(part)
        data = inflater.unused_data
    return b"".join(parts)
