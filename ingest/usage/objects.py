"""Log objects of a gateway's S3 or GCS logger into the log: every object of a prefix once, however often it is run.

An object holds one record or several, plain or gzip. What was read is noted by key and version after its records are durable, so
a run that was cut goes on where it stopped, and late objects with earlier keys are found. ``gs://`` is read by Google's
S3-compatible endpoint with an HMAC key, so one client serves both.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import orjson

from core.errors import BadInput, BadRecord, Unavailable
from ingest.usage.files import FileReport
from ingest.usage.reading import json_items, unpacked
from ingest.usage.registry import ADAPTERS
from ingest.usage.rows import BadRow, ParsedRow, SourceOptions, bad_row
from ingest.usage.service import UsageIngest

BATCH_OBJECTS = 500
GETS_AT_ONCE = 8
MAX_OBJECT = 64 * 1024 * 1024
GCS_ENDPOINT = "https://storage.googleapis.com"
JSON_FORMATS = frozenset({"usage", "litellm", "litellm-spendlog", "openai-log", "envoy-ai-gateway", "apisix", "higress", "kong"})
Progress = Callable[[int], None]
"""Called after each batch with the objects read so far."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    key: str
    version: str
    """Its ETag: an object written again under its key is another."""
    size: int


class ObjectStore(Protocol):
    """A bucket. ``listed`` gives every object under a prefix in key order."""

    def listed(self, prefix: str) -> Iterator[StoredObject]: ...

    def read(self, key: str) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Place:
    """``s3://BUCKET/PREFIX`` or ``gs://BUCKET/PREFIX``."""

    url: str
    scheme: str
    bucket: str
    prefix: str


def parse_place(url: str) -> Place | None:
    """The place a URL names, None for anything but s3:// and gs://. Raises BadInput for one without a bucket."""
    parts = urlsplit(url)
    if parts.scheme not in ("s3", "gs"):
        return None
    if not parts.netloc:
        raise BadInput("names no bucket", field="FILE", value=url, hint=f"write {parts.scheme}://BUCKET/PREFIX")
    return Place(url, parts.scheme, parts.netloc, parts.path.lstrip("/"))


class S3Objects:
    """A bucket by the S3 API; credentials come from the usual AWS chain (for GCS: an HMAC key)."""

    def __init__(self, place: Place, endpoint_url: str | None = None) -> None:
        import boto3  # 0.3 s to import, for this alone
        from botocore.config import Config

        config = Config(
            retries={"mode": "standard", "max_attempts": 5},
            max_pool_connections=GETS_AT_ONCE,
            response_checksum_validation="when_required",
        )
        endpoint = endpoint_url or (GCS_ENDPOINT if place.scheme == "gs" else None)
        self._client: Any = boto3.client("s3", endpoint_url=endpoint, config=config)
        self._place = place

    def listed(self, prefix: str) -> Iterator[StoredObject]:
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._place.bucket, Prefix=prefix)
        for page in self._asked(lambda: iter(pages)):
            for item in page.get("Contents", ()):
                yield StoredObject(item["Key"], item.get("ETag", "").strip('"'), item["Size"])

    def read(self, key: str) -> bytes:
        def body() -> Iterator[bytes]:
            yield self._client.get_object(Bucket=self._place.bucket, Key=key)["Body"].read()

        found: bytes = next(self._asked(body))
        return found

    def _asked(self, ask: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """The answers, with the store's refusals in our words."""
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

        try:
            yield from ask()
        except NoCredentialsError as error:
            hint = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (for gs:// an HMAC key), or a profile"
            raise BadInput("there are no credentials for the bucket", where=self._place.url, hint=hint) from error
        except ClientError as error:
            said = error.response.get("Error", {})
            code, status = said.get("Code", ""), error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            if status >= 500 or code in ("SlowDown", "RequestLimitExceeded"):
                raise Unavailable(
                    f"the bucket cannot be read now ({code})", hint="run it again; it goes on where it was"
                ) from error
            hint = "check bucket, region and permissions (s3:ListBucket, s3:GetObject)"
            raise BadInput(f"the bucket refuses: {code}", where=self._place.url, hint=hint) from error
        except BotoCoreError as error:
            raise Unavailable("the bucket cannot be reached", hint=str(error)[:200]) from error


class Done:
    """Which objects were read: a digest a line, appended after their records are durable."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"{blake2b(name.encode(), digest_size=12).hexdigest()}.done"
        self._seen: set[str] = set()
        if self._path.exists():
            whole = self._path.read_text(encoding="ascii").rpartition("\n")[0]  # a torn last line was never finished
            self._seen = set(whole.split("\n")) - {""}
            self._path.write_text(whole + "\n" if whole else "", encoding="ascii")

    def holds(self, found: StoredObject) -> bool:
        return _digest(found) in self._seen

    def add(self, batch: list[StoredObject]) -> None:
        digests = [_digest(found) for found in batch]
        with self._path.open("a", encoding="ascii") as file:
            file.write("".join(f"{digest}\n" for digest in digests))
        self._seen.update(digests)


def ingest_objects(
    place: Place, store: ObjectStore, format: str, options: SourceOptions, ingest: UsageIngest, done: Done, progress: Progress
) -> FileReport:
    """Read every object of the prefix that was not read before.

    Raises BadInput for a format that is not of JSON, or when the store refuses; Unavailable when it cannot be reached.
    """
    if format not in JSON_FORMATS:
        hint = f"use one of {', '.join(sorted(JSON_FORMATS))}"
        raise BadInput("is not a format of log objects", field="--format", value=format, hint=hint)
    report, seen, read = FileReport(place.url, format), ingest.unmapped.copy(), 0
    fresh = (found for found in store.listed(place.prefix) if found.size and not done.holds(found))
    with ThreadPoolExecutor(GETS_AT_ONCE) as pool:
        while batch := list(islice(fresh, BATCH_OBJECTS)):
            bodies = pool.map(lambda found: _body(store, found), batch)
            _accept(_rows(batch, bodies, format, options), place, ingest, report)
            done.add(batch)
            read += len(batch)
            progress(read)
    report.unmapped = dict(ingest.unmapped - seen)
    return report


def _digest(found: StoredObject) -> str:
    return blake2b(f"{found.key}\0{found.version}".encode("utf-8", "replace"), digest_size=8).hexdigest()


def _body(store: ObjectStore, found: StoredObject) -> bytes | None:
    return store.read(found.key) if found.size <= MAX_OBJECT else None


Placed = tuple[str, ParsedRow]
"""A row and the key of its object; its position is its place in the object."""


def _rows(batch: list[StoredObject], bodies: Iterator[bytes | None], format: str, options: SourceOptions) -> list[Placed]:
    """The rows of many objects read as one body: attempts of one operation often lie in several."""
    lines: list[bytes] = []
    origins: list[tuple[str, int]] = []
    rows: list[Placed] = []
    for found, body in zip(batch, bodies, strict=True):
        if body is None:
            error = BadRecord(f"the object is larger than {MAX_OBJECT} bytes", field="object", value=found.size)
            rows.append((found.key, bad_row(0, error)))
            continue
        for item in json_items(unpacked(io.BytesIO(body))):
            if isinstance(item, BadRow):
                rows.append((found.key, item))
            else:
                origins.append((found.key, item[0]))
                lines.append(_line(item[1], body))
    for row in ADAPTERS[format].rows(io.BytesIO(b"\n".join(lines)), options):
        key, position = origins[row.position - 1]
        rows.append((key, row._replace(position=position)))
    return rows


def _line(item: Any, body: bytes) -> bytes:
    """One line of JSON; what only Python's reader takes (NaN, Infinity) is kept, so that the field can be named."""
    try:
        return orjson.dumps(item) if b"NaN" not in body and b"Infinity" not in body else json.dumps(item).encode()
    except (TypeError, ValueError):
        return json.dumps(item).encode()


def _accept(rows: list[Placed], place: Place, ingest: UsageIngest, report: FileReport) -> None:
    """Good rows in one batch; bad ones with their object's key as their source."""
    report.add(ingest.accept([row for _, row in rows if not isinstance(row, BadRow)], source=place.url))
    for key, row in rows:
        if isinstance(row, BadRow):
            source = f"{place.scheme}://{place.bucket}/{key}"
            verdicts = ingest.accept([row], source=source)
            report.add_bad(source, verdicts)
