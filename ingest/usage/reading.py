"""Bytes to numbered lines and JSON items. A fault costs its own line, never the rest of the file."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, cast

import orjson

from core.errors import BadInput, BadRecord
from ingest.usage.rows import BadRow, bad_row

MAX_LINE = 4 * 1024 * 1024
MAX_DOCUMENT = 256 * 1024 * 1024
BOM = b"\xef\xbb\xbf"
GZIP_MAGIC = b"\x1f\x8b"
GZIP = "gzip"
"""Field of the bad row that stands for the rest of a compressed file that was cut short or damaged."""
Numbered = tuple[int, bytes]
Item = tuple[int, Any]


def unpacked(stream: BinaryIO) -> BinaryIO:
    """The stream itself, or what its gzip holds. ``stream`` must allow ``peek`` (a BufferedReader) or seeking."""
    peek: Callable[[int], bytes] | None = getattr(stream, "peek", None)
    if peek is not None:
        magic = peek(2)[:2]
    else:
        magic = stream.read(2)
        stream.seek(-len(magic), 1)
    return cast(BinaryIO, gzip.GzipFile(fileobj=stream)) if magic == GZIP_MAGIC else stream


def numbered_lines(stream: BinaryIO) -> Iterator[Numbered | BadRow]:
    """(line number from 1, line without its break); blank lines are passed over. A byte-order mark is taken off, an overlong
    line and the end of a gzip that was cut short become bad rows."""
    number = 0
    while True:
        try:
            line = stream.readline(MAX_LINE)
            overlong = len(line) == MAX_LINE and not line.endswith(b"\n") and _skip_rest(stream)
        except (EOFError, OSError, zlib.error) as error:
            yield bad_row(number + 1, BadRecord(f"the compressed file is damaged from here on: {error}", field=GZIP))
            return
        if not line:
            return
        number += 1
        if number == 1:
            line = line.removeprefix(BOM)
        if overlong:
            yield bad_row(number, BadRecord(f"is longer than {MAX_LINE} bytes", field="line"), line)
        elif (line := line.rstrip(b"\r\n")) and not line.isspace():
            yield number, line


def _skip_rest(stream: BinaryIO) -> bool:
    """Read to the next line break; False when there was nothing left (the line just fitted)."""
    skipped = False
    while piece := stream.readline(MAX_LINE):
        skipped = True
        if piece.endswith(b"\n"):
            break
    return skipped


def json_items(stream: BinaryIO) -> Iterator[Item | BadRow]:
    """Items of NDJSON (numbered by line from 1), of one JSON array (numbered from 0), or one JSON object over several lines."""
    return items_of_lines(numbered_lines(stream), stream)


def items_of_lines(lines: Iterable[Numbered | BadRow], stream: BinaryIO) -> Iterator[Item | BadRow]:
    """The same of lines some of which were already taken from ``stream``."""
    first = True
    for numbered in lines:
        if isinstance(numbered, BadRow):
            yield numbered
            continue
        number, line = numbered
        if first and opens_document(line):
            yield from document(number, line, stream)
            return
        first = False
        yield item_of(number, line)


def csv_texts(lines: Iterable[Numbered | BadRow], bad: list[BadRow]) -> Iterator[str]:
    """Lines as ``csv`` reads them; what is no line goes to ``bad``."""
    for numbered in lines:
        if isinstance(numbered, BadRow):
            bad.append(numbered)
        else:
            yield numbered[1].decode("utf-8", "replace") + "\n"


def opens_document(line: bytes) -> bool:
    """Whether the first line of a body begins a JSON array or an object over several lines."""
    stripped = line.strip()
    return stripped[:1] == b"[" or stripped == b"{"


def document(number: int, first: bytes, stream: BinaryIO) -> Iterator[Item | BadRow]:
    """Items of the one document that line opens: an array's (numbered from 0), or the object; if it is none, of each line."""
    try:
        more = stream.read(MAX_DOCUMENT)
        body = first + b"\n" + more if more else first
        rest = stream.read(1)
    except (EOFError, OSError, zlib.error) as error:
        yield bad_row(number, BadRecord(f"the compressed file is damaged: {error}", field=GZIP))
        return
    if rest:
        hint = "write one JSON object per line instead"
        raise BadInput(f"one JSON document of more than {MAX_DOCUMENT} bytes cannot be read", field="file", hint=hint)
    found = item_of(number, body)
    if not isinstance(found, BadRow) and isinstance(found[1], list):
        yield from enumerate(found[1])
    elif isinstance(found, BadRow) and first.strip() == b"{":
        for at, line in enumerate(body.split(b"\n"), number):
            if line.strip():
                yield item_of(at, line)
    else:
        yield found


def item_of(number: int, text: bytes) -> Item | BadRow:
    """One JSON text."""
    try:
        return number, orjson.loads(text)
    except orjson.JSONDecodeError:
        return _lenient(number, text)


def _lenient(number: int, text: bytes) -> Item | BadRow:
    """Python's reader takes NaN, Infinity and lone surrogates, so that the field that holds one can be named."""
    try:
        return number, json.loads(text)
    except RecursionError:
        return bad_row(number, BadRecord("is nested too deeply", field="line"), text)
    except ValueError as error:
        return bad_row(number, BadRecord(f"is not JSON: {_reason(error, number)}", field="line"), text)


def _reason(error: ValueError, number: int) -> str:
    """``number`` is the line the text begins in."""
    if isinstance(error, json.JSONDecodeError):
        place = f"column {error.colno}" if error.lineno == 1 else f"line {number + error.lineno - 1}, column {error.colno}"
        is_cut = error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated string")
        return f"{error.msg} at {place}{', where the text ends: was it cut short?' if is_cut else ''}"
    return "is not UTF-8" if isinstance(error, UnicodeDecodeError) else "a number is too long"
