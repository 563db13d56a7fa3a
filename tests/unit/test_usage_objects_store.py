"""Log objects in a bucket: each read once, over pages, gzip, cuts and late objects; attempts that lie in several objects."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws
from usage_samples import MemoryLog, ingest_into, usage_item

from core.errors import BadInput
from ingest.usage.objects import Done, S3Objects, ingest_objects, parse_place
from ingest.usage.rows import SourceOptions

URL = "s3://logs/litellm/"


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    config = tmp_path_factory.mktemp("aws") / "config"
    config.write_text("[default]\ns3 =\n  addressing_style = path\n")  # moto knows no other of this boto3
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        client = boto3.client("s3")
        client.create_bucket(Bucket="logs")
        yield client


def put(client: Any, key: str, *items: Any, packed: bool = False) -> None:
    body = b"\n".join(json.dumps(item).encode() for item in items)
    client.put_object(Bucket="logs", Key=f"litellm/{key}", Body=gzip.compress(body) if packed else body)


def run(log: MemoryLog, folder: Path, format: str = "usage", url: str = URL) -> tuple[int, int, int]:
    place = parse_place(url)
    assert place is not None
    done = Done(folder, f"{url} {format}")
    report = ingest_objects(place, S3Objects(place), format, SourceOptions(), ingest_into(log), done, lambda _: None)
    return report.accepted, report.duplicate, report.quarantined


def test_more_objects_than_a_page_are_read_once(bucket: Any, tmp_path: Path) -> None:
    for number in range(1, 1204):
        put(bucket, f"2026-11-30/{number:05d}.json", usage_item(number), packed=number % 2 == 0)
    log = MemoryLog()
    assert run(log, tmp_path) == (1203, 0, 0)
    assert run(log, tmp_path) == (0, 0, 0)
    put(bucket, "2026-11-30/00000-late.json", usage_item(5000))
    put(bucket, "2026-11-30/00001.json", usage_item(1), usage_item(5001))
    assert run(log, tmp_path) == (3, 0, 0), "a rewritten object is read again; the stream counts its first record once"
    assert {record["request_id"] for record in log.records()} == {
        f"chatcmpl-{n}:generation" for n in (*range(1, 1204), 5000, 5001)
    }


def test_a_cut_run_goes_on_and_a_torn_note_counts_for_nothing(bucket: Any, tmp_path: Path) -> None:
    put(bucket, "a.json", usage_item(1))
    put(bucket, "b.json", usage_item(2))
    run(MemoryLog(), tmp_path)
    (notes,) = tmp_path.iterdir()
    notes.write_text(notes.read_text()[:-3])
    log = MemoryLog()
    assert run(log, tmp_path) == (1, 0, 0)
    assert run(MemoryLog(), tmp_path) == (0, 0, 0)


def test_bad_records_name_their_object(bucket: Any, tmp_path: Path) -> None:
    put(bucket, "a.json", usage_item(1), usage_item(2, status="odd"))
    bucket.put_object(Bucket="logs", Key="litellm/b.json", Body=b'{"request_id": NaN, "started_at": 1}')
    bucket.put_object(Bucket="logs", Key="litellm/c.json.gz", Body=gzip.compress(b'{"a": 1}\n' * 500)[:-9])
    bucket.put_object(Bucket="logs", Key="litellm/empty.json", Body=b"")
    log = MemoryLog()
    accepted, _, quarantined = run(log, tmp_path)
    assert accepted == 1
    assert quarantined >= 3
    places = {line["place"] for line in log.quarantined()}
    assert {"s3://logs/litellm/a.json:2", "s3://logs/litellm/b.json:1"} <= places
    assert any(line["field"] == "gzip" and "c.json.gz" in line["place"] for line in log.quarantined())


def test_attempts_that_lie_in_several_objects_are_told_apart(bucket: Any, tmp_path: Path) -> None:
    common = {"litellm_call_id": "c", "call_type": "acompletion", "model": "m", "metadata": {}, "startTime": 1796039000.0}
    put(bucket, "1.json", common | {"id": "c", "status": "failure", "endTime": 1796039001.0, "model_group": "asked"})
    counted = {"usage_object": {"prompt_tokens": 120, "completion_tokens": 30}}
    put(bucket, "2.json", common | {"id": "chatcmpl-9", "status": "success", "endTime": 1796039002.0, "metadata": counted})
    log = MemoryLog()
    assert run(log, tmp_path, "litellm") == (2, 0, 0)
    failed, answered = log.records()
    assert (failed["ends_operation"], answered["requested_model"]) == (False, "asked")


@pytest.mark.parametrize(
    ("url", "format", "says"),
    [
        ("s3://absent/x", "usage", "NoSuchBucket"),
        (URL, "vtc", "not a format of log objects"),
        ("s3:///x", "usage", "names no bucket"),
    ],
)
def test_what_cannot_be_read_says_why(bucket: Any, tmp_path: Path, url: str, format: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        run(MemoryLog(), tmp_path, format, url)


def test_places() -> None:
    assert parse_place("usage.jsonl") is None
    place = parse_place("gs://bucket/a/b")
    assert place is not None
    assert (place.scheme, place.bucket, place.prefix) == ("gs", "bucket", "a/b")
