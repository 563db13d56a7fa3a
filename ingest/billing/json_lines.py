"""Answers of billing APIs, as JSON or JSON lines, into rows of text: numbers as they are written, nested fields by their path.

A page's lists are spread into rows, so ``{"data": [{"start_time": …, "results": [{…}, {…}]}]}`` is two rows which both say their
bucket's start, and a Tencent line is a row for each of its components.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from core.errors import BadInput

WRAPPERS = ("Response", "Result", "Data", "data", "response", "metadata")
ROW_LISTS = ("data", "results", "Items", "Item", "List", "DetailSet", "Data")
PARTS = ("ComponentSet",)
"""Lists whose elements are parts of a line: their fields keep the list's name in front."""
MORE = ("has_more", "NextToken", "next_page")
"""What an answer says when it is not the last page."""
HINT = "the delivery is refused, the former one stays; fetch every page into one file"


def looks_like_json(path: Path) -> bool:
    """Whether the first sign of the file, plain or gzip, opens an object or a list."""
    return _text(path, 64).lstrip("\ufeff \t\r\n")[:1] in ("{", "[")


def json_table(path: Path) -> pa.Table:
    """All rows, every column text, in the file's order.

    Raises BadInput when it is no JSON, holds no row, or its last answer says that another page follows.
    """
    rows: list[dict[str, str | None]] = []
    last: Any = None
    for last in _documents(_text(path)):
        rows.extend(_rows(last))
    more = [name for name in MORE if isinstance(last, dict) and _says_more(_unwrapped(last).get(name, last.get(name)))]
    if more:
        raise BadInput("ends before its last page", field=more[0], hint=HINT)
    if not rows:
        raise BadInput("holds no row", hint="expected the answers of a billing API, or a line for each charge")
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pa.table({name: pa.array([row.get(name) for row in rows], pa.string()) for name in names})


def write_json(path: Path, target: Path) -> Path:
    """The rows of ``path`` as Parquet at ``target``."""
    pq.write_table(json_table(path), target)
    return target


def _text(path: Path, most: int = -1) -> str:
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    with gzip.open(path) if packed else path.open("rb") as opened:
        return opened.read(most).decode("utf-8-sig", errors="strict" if most < 0 else "ignore")


def _documents(text: str) -> Iterator[Any]:
    """One document, or one a line."""
    decoder = json.JSONDecoder(parse_float=str, parse_int=str)
    try:
        whole = decoder.decode(text)
    except json.JSONDecodeError:
        yield from _by_line(decoder, text)
        return
    yield from whole if isinstance(whole, list) else [whole]


def _by_line(decoder: json.JSONDecoder, text: str) -> Iterator[Any]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            yield decoder.decode(line)
        except json.JSONDecodeError as error:
            hint = "is it cut short? the delivery is refused, the former one stays"
            raise BadInput(f"line {number} is no JSON ({error.msg})", value=line[:80], hint=hint) from error


def _unwrapped(document: Mapping[str, Any]) -> Mapping[str, Any]:
    for name in WRAPPERS:
        inner = document.get(name)
        if isinstance(inner, dict):
            return _unwrapped(inner)
    return document


def _rows(document: Any) -> Iterator[dict[str, str | None]]:
    if not isinstance(document, dict):
        raise BadInput("holds something that is no object", value=str(document)[:80])
    yield from _spread({k: v for k, v in document.items() if k not in MORE})


def _spread(record: Mapping[str, Any], prefix: str = "") -> Iterator[dict[str, str | None]]:
    own: dict[str, str | None] = {}
    lists: list[tuple[str, list[Any]]] = []
    for name, value in _fields(record, prefix):
        leaf = name.rpartition(".")[2]
        spreads = isinstance(value, list) and leaf in (*ROW_LISTS, *PARTS) and all(isinstance(item, dict) for item in value)
        if spreads and value:
            lists.append((f"{leaf}." if leaf in PARTS else "", value))
        elif not (spreads and leaf in ROW_LISTS):
            own[name] = _cell(value)
    if len(lists) > 1:
        raise BadInput("has two lists of rows beside each other", value=", ".join(sorted(own)[:5]), hint="pass one answer a line")
    if lists:
        for item in lists[0][1]:
            yield from ({**own, **row} for row in _spread(item, lists[0][0]))
    elif own and not _is_empty_page(record):
        yield own


def _is_empty_page(record: Mapping[str, Any]) -> bool:
    return any(isinstance(value, list) and not value and name in ROW_LISTS for name, value in _fields(record, ""))


def _fields(record: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        if isinstance(value, dict):
            yield from _fields(value, "" if name in WRAPPERS else f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _cell(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False)


def _says_more(value: Any) -> bool:
    return value not in (None, False, "", "false")
