"""Which columns a delta file has: its folder is named after them, so that any version's files are read by name.

``DATA/deltas/KIND/COLUMNS/columns.json`` holds ``[[name, type], …]`` in the files' order; COLUMNS is its fingerprint. It stays
as long as packs of such files are kept, for a rebuild.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from core.errors import Conflict
from eventlog.layout import make_folder
from streaming.plan import Columns

NOTE = "columns.json"
_USAGE_KEYS = "cluster namespace model_id org team project user_id key_id service_tier status usage_source"
_USAGE_SUMS = (
    "requests input_uncached input_cache_read input_cache_write_5m input_cache_write_1h output output_reasoning prefill_context "
    "kv_work_x2 duration_ms repeated_input length_input length_output"
)
_ENGINE_KEYS = "cluster namespace model_id target engine node"
_ENGINE_SUMS = (
    "prompt_tokens generation_tokens prompt_tokens_cached prompt_tokens_computed requests_finished steps iteration_tokens "
    "preemptions queue_us prefill_us decode_us inference_us observed_us busy_us saturated_us gap_us running_us waiting_us "
    "kv_token_us kv_token_steps samples resets"
)


def _typed(integers: str, texts: str, more_integers: str) -> Columns:
    first, last = ([(name, "BIGINT") for name in names.split()] for names in (integers, more_integers))
    return (*first, *((name, "STRING") for name in texts.split()), *last)


UNNAMED: Mapping[str, Columns] = {
    "usage": _typed("minute_ms", _USAGE_KEYS, f"workload_class {_USAGE_SUMS}"),
    "engine": _typed("minute_ms", _ENGINE_KEYS, _ENGINE_SUMS),
    "progress": _typed("", "topic segment", "lines"),
}
"""Columns of files that lie in DATA/deltas/KIND itself: version 0.1.0 wrote them there. Never edited."""


def columns_name(columns: Columns) -> str:
    """The folder's name: a fingerprint of names, types and order."""
    return hashlib.sha256(_encoded(columns)).hexdigest()[:12]


def delta_folder(deltas: Path, kind: str, columns: Columns) -> Path:
    return deltas / kind / columns_name(columns)


def note_columns(deltas: Path, kinds: Mapping[str, Columns]) -> None:
    """Make each kind's folder with its note, durably, before a job writes there."""
    for kind, columns in kinds.items():
        place = delta_folder(deltas, kind, columns) / NOTE
        make_folder(place.parent)
        fresh = place.with_name(f".{NOTE}")
        with fresh.open("wb") as file:
            file.write(_encoded(columns))
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(place)


@cache
def read_columns(folder: Path) -> Columns:
    """The columns of the files in ``deltas/KIND/COLUMNS``. Raises Conflict when the note is gone or not the one of that name."""
    hint = "put the file back from a backup; the delta files beside it wait until then"
    try:
        columns = tuple((str(name), str(kind)) for name, kind in json.loads((folder / NOTE).read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise Conflict(f"{folder / NOTE} cannot be read ({error})", hint=hint) from error
    if columns_name(columns) != folder.name:
        raise Conflict(f"{folder / NOTE} does not hold the columns its folder is named after", hint=hint)
    return columns


def _encoded(columns: Columns) -> bytes:
    return json.dumps([list(column) for column in columns]).encode()
