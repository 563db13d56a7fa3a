"""Bills in buckets: found by manifest past any page, half-way deliveries; refusals in plain words and backoff over real HTTP."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import pytest
from bill_lines import csv_bytes, cur_line
from moto import mock_aws

from core.errors import BadInput, Refused, Unavailable
from ingest.billing.adapter import BillOptions
from ingest.billing.importer import fetch_delivery
from ingest.billing.layouts import find_deliveries
from ingest.billing.s3_store import S3Files, S3Settings

PAGE = 1000
REGION = "cn-north-1"


@pytest.fixture(autouse=True)
def _aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("[default]\ns3 =\n  addressing_style = path\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)


@pytest.fixture
def bucket() -> Iterator[tuple[Any, str]]:
    """A client, and the name of a bucket in a China region (partition aws-cn)."""
    with mock_aws():
        client = boto3.client("s3", region_name=REGION)
        client.create_bucket(Bucket="pay", CreateBucketConfiguration={"LocationConstraint": REGION})
        yield client, "pay"


def report(*costs: str) -> bytes:
    return gzip.compress(csv_bytes([cur_line("Usage", {"unblended": cost}) for cost in costs]))


def put_manifest(client: Any, name: str, assembly: str, files: list[str]) -> None:
    body = {
        "assemblyId": assembly, "reportName": "cur", "billingPeriod": {"start": "20260701T000000.000Z"},
        "reportKeys": [f"bills/cur/20260701-20260801/{assembly}/{file}" for file in files],
    }  # fmt: skip
    client.put_object(Bucket=name, Key="bills/cur/20260701-20260801/cur-Manifest.json", Body=json.dumps(body).encode())


def put_file(client: Any, name: str, assembly: str, file: str, body: bytes) -> None:
    client.put_object(Bucket=name, Key=f"bills/cur/20260701-20260801/{assembly}/{file}", Body=body)


def store_of(name: str, url: str | None = None) -> S3Files:
    return S3Files(f"s3://{name}/bills", S3Settings(endpoint_url=url, region=REGION))


def test_b5_the_manifest_beyond_the_first_page_is_found(bucket: tuple[Any, str], tmp_path: Path) -> None:
    client, name = bucket
    for number in range(PAGE + 5):
        client.put_object(Bucket=name, Key=f"bills/aaa-old/{number:05d}.csv.gz", Body=b"")
    put_file(client, name, "a1", "cur-1.csv.gz", report("1", "2"))
    put_manifest(client, name, "a1", ["cur-1.csv.gz"])
    store = store_of(name)
    assert len(store.listed()) == PAGE + 7
    (found,) = find_deliveries(store, needs_manifest=True)
    delivery = fetch_delivery(store, found, tmp_path, "aws-cur", BillOptions())
    assert [shown for shown, _ in delivery.files] == [f"s3://{name}/bills/cur/20260701-20260801/a1/cur-1.csv.gz"]
    assert delivery.files[0][1].read_bytes()[:2] == b"\x1f\x8b"


def test_a_delivery_half_way_is_not_there_yet(bucket: tuple[Any, str]) -> None:
    """Create-new: data files of the next delivery appear before its manifest; the former manifest still speaks."""
    client, name = bucket
    put_file(client, name, "a1", "cur-1.csv.gz", report("1"))
    put_manifest(client, name, "a1", ["cur-1.csv.gz"])
    put_file(client, name, "a2", "cur-1.csv.gz", report("9"))
    store = store_of(name)
    (found,) = find_deliveries(store, needs_manifest=True)
    assert found.delivery_id == "a1"
    put_manifest(client, name, "a2", ["cur-1.csv.gz", "cur-2.csv.gz"])
    (found,) = find_deliveries(store, needs_manifest=True)
    assert [Path(key).name for key in found.missing] == ["cur-2.csv.gz"]


def test_a_delivery_written_anew_while_it_is_read_is_tried_again(bucket: tuple[Any, str], tmp_path: Path) -> None:
    client, name = bucket
    put_file(client, name, "a1", "cur-1.csv.gz", report("1"))
    put_manifest(client, name, "a1", ["cur-1.csv.gz"])
    store = store_of(name)
    (found,) = find_deliveries(store, needs_manifest=True)
    put_manifest(client, name, "a2", ["cur-1.csv.gz"])
    with pytest.raises(Unavailable, match="written anew"):
        fetch_delivery(store, found, tmp_path, "aws-cur", BillOptions())


def test_no_manifest_at_all_is_no_delivery(bucket: tuple[Any, str]) -> None:
    client, name = bucket
    put_file(client, name, "a1", "cur-1.csv.gz", report("1"))
    put_file(client, name, "a1", "cur-2.csv.gz", report("1"))
    with pytest.raises(BadInput, match="2 data files and no manifest"):
        find_deliveries(store_of(name), needs_manifest=True)


def test_a_bucket_that_is_not_there(bucket: tuple[Any, str]) -> None:
    with pytest.raises(BadInput, match=r"s3://nowhere/bills: there is no such bucket"):
        store_of("nowhere").listed()


LISTING = b"""<?xml version="1.0"?><ListBucketResult><Name>b</Name><KeyCount>1</KeyCount><MaxKeys>1000</MaxKeys>
<IsTruncated>false</IsTruncated><Contents><Key>bills/x.csv</Key><LastModified>2026-07-01T00:00:00.000Z</LastModified>
<ETag>"e"</ETag><Size>1</Size></Contents></ListBucketResult>"""


class Scripted:
    """An S3 that answers with the given errors first, then with a listing."""

    def __init__(self, *errors: tuple[int, str, str]) -> None:
        self.errors, self.asked = list(errors), 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked += 1
                status, code, more = outer.errors.pop(0) if outer.errors else (200, "", "")
                body = f"<Error><Code>{code}</Code><Message>m</Message>{more}</Error>".encode() if code else LISTING
                self.send_response(status)
                self.send_header("Content-Type", "application/xml")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

            do_HEAD = do_GET

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self) -> S3Files:
        return store_of("b", f"http://127.0.0.1:{self.server.server_port}")

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def test_throttled_calls_are_tried_again() -> None:
    busy = Scripted((503, "SlowDown", ""), (503, "SlowDown", ""))
    with busy as store:
        assert [stored.key for stored in store.listed()] == ["bills/x.csv"]
    assert busy.asked == 3


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        ((403, "AccessDenied", ""), Refused, "access is denied.*s3:ListBucket"),
        ((301, "PermanentRedirect", "<Region>eu-west-1</Region>"), BadInput, "another region.*--region eu-west-1"),
        ((400, "AuthorizationHeaderMalformed", "<Region>cn-northwest-1</Region>"), BadInput, "--region cn-northwest-1"),
    ],
)
def test_refusals_say_what_to_do(answer: tuple[int, str, str], error: type[Exception], words: str) -> None:
    with Scripted(*[answer] * 9) as store, pytest.raises(error, match=words):
        store.listed()


def test_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with Scripted() as store, pytest.raises(BadInput, match="no credentials"):
        store.listed()
