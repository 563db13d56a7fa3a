"""Azure exports as they lie in a container: a folder a run, each with a manifest; the newest run of a period is the delivery."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from core.errors import BadInput
from ingest.billing.delivery import FileStore, FoundDelivery, Stored

_MANIFEST = re.compile(r"(^|/)_?manifest\.json$")


def azure_deliveries(store: FileStore, objects: Sequence[Stored]) -> Sequence[FoundDelivery]:
    """The newest run of each (export, period): a month-to-date export writes the whole month again and keeps its former runs.

    Raises BadInput when a manifest cannot be read.
    """
    sizes = {stored.key: stored.size for stored in objects}
    newest: dict[tuple[str, date], tuple[str, FoundDelivery]] = {}
    for stored in objects:
        if _MANIFEST.search(stored.key) is None:
            continue
        found, submitted = _read(store, stored.key, sizes)
        place = (found.export, found.period or date.min)
        if place not in newest or submitted > newest[place][0]:
            newest[place] = (submitted, found)
    return [found for _, found in sorted(newest.values(), key=lambda item: (item[1].export, item[1].period or date.min))]


def _read(store: FileStore, key: str, sizes: Mapping[str, int]) -> tuple[FoundDelivery, str]:
    body = store.read(key)
    try:
        manifest = json.loads(body)
        run, blobs = manifest["runInfo"], manifest["blobs"]
        period = date.fromisoformat(str(run["startDate"])[:10]).replace(day=1)
        export, run_id, submitted = str(manifest["exportConfig"]["exportName"]), str(run["runId"]), str(run["submittedTime"])
        places = [_resolve(blob, key, sizes) for blob in blobs]
        missing = tuple(str(blob["blobName"]) for blob, place in zip(blobs, places, strict=True) if place is None)
    except (ValueError, KeyError, TypeError) as error:
        hint = "expected the manifest of a Cost Management export"
        raise BadInput(f"is no manifest that can be read ({error!r})", where=store.name(key), hint=hint) from error
    keys = tuple(place for place in places if place is not None)
    return FoundDelivery(export, run_id, keys, period, (key, body), missing), submitted


def _resolve(blob: Mapping[str, Any], manifest_key: str, sizes: Mapping[str, int]) -> str | None:
    """The stored key of a blob, as named or beside its manifest in a copy; None when it is absent or shorter than stated."""
    name, folder = str(blob["blobName"]).lstrip("/"), manifest_key.rpartition("/")[0]
    beside = f"{folder}/{name.rpartition('/')[2]}".lstrip("/")
    found = next((place for place in (name, beside) if place in sizes), None)
    stated = int(blob.get("byteCount") or 0) if name.lower().endswith(".csv") else 0  # of packed files it is another size
    return found if found is not None and sizes[found] >= stated else None
