"""Which deliveries a place holds, by their manifests: a folder may hold old, partial and overlapping parts beside them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any

from core.errors import BadInput
from ingest.billing.alibaba_layout import alibaba_deliveries
from ingest.billing.azure_layout import azure_deliveries
from ingest.billing.delivery import FileStore, FoundDelivery, Stored

DATA_ENDINGS = (".csv", ".csv.gz", ".parquet", ".snappy.parquet", ".jsonl", ".gz", ".zip")
_AWS_MANIFEST = re.compile(r"-Manifest\.json$")
_PERIOD_FOLDER = re.compile(r"BILLING_PERIOD=(\d{4})-(\d{2})(?:/|$)")
Layout = Callable[[FileStore, Sequence[Stored]], Sequence[FoundDelivery]]
"""The newest delivery of each (export, billing period), or nothing when the place is not laid out its way."""


def aws_deliveries(store: FileStore, objects: Sequence[Stored]) -> Sequence[FoundDelivery]:
    """AWS legacy reports and Data Exports, create-new and overwrite: the manifest is written last and names the files."""
    manifests = [stored for stored in objects if _AWS_MANIFEST.search(stored.key)]
    keys = {stored.key for stored in objects}
    newest: dict[tuple[str, date], tuple[tuple[int, float], FoundDelivery]] = {}
    for stored in manifests:
        found = _read_manifest(store, stored.key, keys)
        # Of the copies of one manifest the outer one (month folder) names the newest delivery; of equals the last written.
        rank = (-stored.key.count("/"), stored.modified)
        place = (found.export, found.period or date.min)
        if place not in newest or rank > newest[place][0]:
            newest[place] = (rank, found)
    return [found for _, found in sorted(newest.values(), key=lambda item: (item[1].export, item[1].period or date.min))]


def plain_files(store: FileStore, objects: Sequence[Stored]) -> Sequence[FoundDelivery]:
    """No manifest: the data files at hand are the parts of one delivery."""
    keys = tuple(stored.key for stored in objects if stored.key.lower().endswith(DATA_ENDINGS))
    if not keys and len(objects) == 1:
        keys = (objects[0].key,)
    if not keys:
        return ()
    name = keys[0] if len(keys) == 1 else keys[0].rpartition("/")[0] or keys[0]
    stem = re.sub(
        r"(\.csv|\.parquet|\.snappy|\.gz|\.zip|\.json|\.jsonl|\.txt)+$", "", name.rpartition("/")[2], flags=re.IGNORECASE
    )
    return (FoundDelivery(stem or "bill", "", keys),)


LAYOUTS: Mapping[str, Layout] = {"aws": aws_deliveries, "azure": azure_deliveries, "alibaba": alibaba_deliveries}
"""Layouts with a manifest; the first that finds one speaks for the place. Without any, a place is plain files."""


def find_deliveries(store: FileStore, *, needs_manifest: bool) -> Sequence[FoundDelivery]:
    """All deliveries of a place. ``needs_manifest``: several files without one are a delivery that is not finished.

    Raises BadInput when there is nothing to read, or files without the manifest that says they are whole.
    """
    objects = store.listed()
    for layout in LAYOUTS.values():
        found = layout(store, objects)
        if found:
            return found
    data = [stored for stored in objects if stored.key.lower().endswith(DATA_ENDINGS)]
    if needs_manifest and len(objects) > 1 and data:
        hint = "a delivery is whole when its manifest is there: run it again later, or name one file"
        raise BadInput(f"holds {len(data):,} data files and no manifest", where=store.name(""), hint=hint)
    plain = plain_files(store, objects)
    if not plain:
        raise BadInput("holds no bill", where=store.name(""), hint=f"looked for a manifest and for {', '.join(DATA_ENDINGS)}")
    return plain


def _read_manifest(store: FileStore, key: str, keys: set[str]) -> FoundDelivery:
    body = store.read(key)
    try:
        manifest = json.loads(body)
        named, export, delivery_id, period = _legacy(manifest) if "reportKeys" in manifest else _data_export(manifest, key)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        hint = "expected the manifest of a cost and usage report or of a data export"
        raise BadInput(f"is no manifest that can be read ({error!r})", where=store.name(key), hint=hint) from error
    places = [_resolve(name, key, delivery_id, keys) for name in named]
    missing = tuple(name for name, place in zip(named, places, strict=True) if place is None)
    found = tuple(place for place in places if place is not None)
    return FoundDelivery(export, delivery_id, found, period, (key, body), missing)


def _legacy(manifest: Mapping[str, Any]) -> tuple[list[str], str, str, date]:
    start = str(manifest["billingPeriod"]["start"])
    return list(manifest["reportKeys"]), manifest["reportName"], manifest["assemblyId"], _day(start)


def _data_export(manifest: Mapping[str, Any], key: str) -> tuple[list[str], str, str, date]:
    export = key.rpartition("/")[2].removesuffix("-Manifest.json")
    found = _PERIOD_FOLDER.search(key)
    if found is None:
        raise KeyError("BILLING_PERIOD in the manifest's place")
    return list(manifest["dataFiles"]), export, str(manifest["executionId"]), date(int(found[1]), int(found[2]), 1)


def _day(text: str) -> date:
    return date(int(text[:4]), int(text[4:6]), int(text[6:8]))


def _resolve(name: str, manifest_key: str, delivery_id: str, keys: set[str]) -> str | None:
    """The stored key of a file a manifest names: as written, or where it lies in a copy of the export's folder."""
    path = re.sub(r"^s3://[^/]+/", "", name).lstrip("/")
    base, folder = path.rpartition("/")[2], manifest_key.rpartition("/")[0]
    root, sign, _ = f"/{manifest_key}".rpartition("/metadata/")
    candidates = [path, f"{folder}/{delivery_id}/{base}", f"{folder}/{base}"]
    if sign:
        candidates.append(f"{root}/data/{path.rpartition('/data/')[2]}".lstrip("/"))
    return next((place for place in (c.lstrip("/") for c in candidates) if place in keys), None)
