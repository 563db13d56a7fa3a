"""The boundary's last word on where a record was served: what a vendor answered lies in the vendor's deployment."""

from __future__ import annotations

import csv

import orjson

from core.bought import CLUSTER
from core.errors import BadRecord
from core.identity_codec import IDENTITY, identity_of
from core.usage import Deployment, encode_line
from core.usage_codec import DEPLOYMENT_KEYS
from core.vendor_place import place_of_provider
from ingest.usage.rows import BadRow, ParsedRow, Prepared

SAID = "deployment"
"""Key of ``raw.identity``: the place the source said, where another one counts."""
_PROVIDER = b'"provider":"'
_BOUGHT = f'"deployment":{{"cluster":"{CLUSTER}",'.encode()
_PLACE = slice(3, 6)
"""Columns of ``core.usage.LINE_COLUMNS``: cluster, namespace, model_id."""


def in_its_place(row: ParsedRow) -> ParsedRow:
    """The row under the deployment that its provider means (``core.vendor_place``). A canonical record of one's own engines names
    no provider and keeps its bytes, as one already in its place does; one whose provider cannot be a name is a bad row."""
    if type(row) is not Prepared:
        return row
    named = row.record.find(_PROVIDER)
    if named < 0 or row.record.find(_BOUGHT, 0, named) >= 0:
        return row
    body = orjson.loads(row.record)
    said = Deployment(*(body["deployment"][key] for key in DEPLOYMENT_KEYS))
    try:
        place = place_of_provider(body.get("provider", ""), said)
    except BadRecord as error:
        return BadRow(row.position, error, {"request_id": row.request_id, "provider": body["provider"]}, row.request_id)
    return row if place == said else _moved(row, body, place)


def _moved(row: Prepared, body: dict[str, object], place: Deployment) -> Prepared:
    names = (place.cluster, place.namespace, place.model_id)
    fields = next(csv.reader([row.line]))
    fields[_PLACE] = names
    identity = {**identity_of(body), SAID: body["deployment"]}
    raw = body.get("raw")
    body["deployment"] = dict(zip(DEPLOYMENT_KEYS, names, strict=True))
    body["raw"] = {IDENTITY: identity} | {k: v for k, v in (raw if isinstance(raw, dict) else {}).items() if k != IDENTITY}
    return row._replace(line=encode_line(tuple(fields)), record=orjson.dumps(body))
