"""Bills from S3 over real HTTP: long listings, half-way deliveries, refusals, throttling, layouts, the China partition."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import boto3
import pytest
from aws_servers import Door
from s3_exports import LAYOUTS, deliver, keys_of, manifest_of, report
from sqlalchemy import Engine

from core.errors import BadInput, Refused, Unavailable
from ingest.billing.adapter import BillOptions
from ingest.billing.delivery import Accept
from ingest.billing.importer import BillImport
from ingest.billing.layouts import find_deliveries
from ingest.billing.registry import ADAPTERS
from ingest.billing.s3_store import ATTEMPTS, S3Files, S3Settings
from ingest.billing.switch import ImportedBill, ImportSettings
from models.billing_repo import charges_by

pytestmark = pytest.mark.db
PAGE = 1000
BUCKET = "pay"


def s3(url: str, region: str = "us-east-1") -> Any:
    return boto3.client("s3", endpoint_url=url, region_name=region)


@pytest.fixture
def client(moto_url: str) -> Any:
    made = s3(moto_url)
    made.create_bucket(Bucket=BUCKET)
    return made


class Take:
    """Imports from the bucket through the door, each an hour after the former."""

    def __init__(self, db: Engine, folder: Path, door: Door) -> None:
        self.db, self.folder, self.door = db, folder, door
        self.now = datetime(2026, 8, 1, tzinfo=UTC)

    def store(self, region: str | None = None) -> S3Files:
        return S3Files(f"s3://{BUCKET}/bills", S3Settings(endpoint_url=self.door.url, region=region))

    def __call__(self) -> list[ImportedBill]:
        self.now += timedelta(hours=1)
        job = BillImport(ImportSettings(self.db, self.folder, "aws-cur", ADAPTERS["aws-cur"], BillOptions(), Accept(), self.now))
        store = self.store()
        return [bill for found in find_deliveries(store, needs_manifest=True) for bill in job.run(store, found)]

    def billed(self) -> Decimal:
        with self.db.connect() as connection:
            return sum((row["billed_cost"] for row in charges_by(connection, [])), Decimal(0))


@pytest.fixture
def take(db: Engine, tmp_path: Path, door: Door) -> Take:
    return Take(db, tmp_path / "data", door)


def test_b5_more_than_a_page_of_keys_and_the_wanted_manifest_last(client: Any, take: Take) -> None:
    def put(number: int) -> None:
        client.put_object(Bucket=BUCKET, Key=f"bills/aaa/{number:05d}.csv.gz", Body=b"")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put, range(PAGE + 5)))
    deliver(client, BUCKET, "legacy create-new", "a1", {"cur-1.csv.gz": report("1.25", "2")})
    (bill,) = take()
    assert (bill.export, bill.rows, take.billed()) == ("cur", 2, Decimal("3.25"))
    assert sum("list-type=2" in path for _, path in take.door.asked) == 2


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_is_read_and_a_later_delivery_replaces_the_former(client: Any, take: Take, layout: str) -> None:
    deliver(client, BUCKET, layout, "a1", {"cur-1.csv.gz": report("1"), "cur-2.csv.gz": report("2")})
    assert [(bill.version, bill.billing_period.isoformat()) for bill in take()] == [(1, "2026-07-01")]
    deliver(client, BUCKET, layout, "a2", {"cur-1.csv.gz": report("10"), "cur-2.csv.gz": report("0.5")})
    (later,) = take()
    assert (later.version, later.replaces, take.billed()) == (2, 1, Decimal("10.5"))
    assert [bill.status for bill in take()] == ["unchanged"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_b7_half_way_is_refused_and_whole_is_taken(client: Any, take: Take, layout: str) -> None:
    deliver(client, BUCKET, layout, "a1", {"cur-1.csv.gz": report("1")})
    take()
    deliver(client, BUCKET, layout, "a2", {"cur-1.csv.gz": report("5"), "cur-7.csv.gz": None})
    with pytest.raises(BadInput, match=r"1 of the 2 files of its manifest are not there: .*cur-7\.csv\.gz"):
        take()
    assert take.billed() == 1
    deliver(client, BUCKET, layout, "a2", {"cur-1.csv.gz": report("5"), "cur-7.csv.gz": report("6")})
    take()
    assert take.billed() == 11


def test_files_without_their_manifest_are_not_there_yet(client: Any, take: Take) -> None:
    """Create-new: the next delivery's files come first; until its manifest speaks the former one is read."""
    deliver(client, BUCKET, "legacy create-new", "a1", {"cur-1.csv.gz": report("1")})
    take()
    _, (key,) = keys_of("legacy create-new", "a2", ["cur-1.csv.gz"])
    client.put_object(Bucket=BUCKET, Key=key, Body=report("9"))
    assert [bill.status for bill in take()] == ["unchanged"]
    assert take.billed() == 1


@pytest.mark.parametrize("layout", ["legacy create-new", "export overwrite"])
def test_a_newer_assembly_that_arrives_while_one_is_read(client: Any, take: Take, layout: str) -> None:
    """Its manifest is there between the listing and the end of the reading: nothing is taken, the next run takes the new one."""
    deliver(client, BUCKET, layout, "a1", {"cur-1.csv.gz": report("1")})
    waiting = [True]

    def arrive(path: str) -> None:
        if waiting and "cur-1.csv.gz" in path:
            waiting.clear()
            deliver(client, BUCKET, layout, "a2", {"cur-1.csv.gz": report("2")})

    take.door.on_get = arrive
    with pytest.raises(Unavailable, match="written anew while it was read"):
        take()
    assert take.billed() == 0
    take()
    assert take.billed() == 2


def test_a_part_that_is_gone_between_listing_and_reading(client: Any, take: Take) -> None:
    layout = "legacy create-new"
    deliver(client, BUCKET, layout, "a1", {"cur-1.csv.gz": report("1")})
    _, (key,) = keys_of(layout, "a1", ["cur-1.csv.gz"])

    def vanish(path: str) -> None:
        if path.endswith("cur-1.csv.gz"):
            client.delete_object(Bucket=BUCKET, Key=key)

    take.door.on_get = vanish
    with pytest.raises(BadInput, match=r"the object is gone.*run it again"):
        take()


def test_a_report_packed_as_zip(client: Any, take: Take) -> None:
    deliver(client, BUCKET, "legacy create-new", "a1", {"cur-1.csv.zip": report("1", "2", packed="zip")})
    take()
    assert take.billed() == 3
    deliver(client, BUCKET, "legacy create-new", "a2", {"cur-1.csv.zip": report("7", packed="zip")[:-30]})
    with pytest.raises(BadInput, match=r"cur-1\.csv\.zip: is a ZIP that is damaged or cut short"):
        take()
    assert take.billed() == 3


def busy(times: int) -> list[tuple[int, str, str]]:
    return [(503, "SlowDown", "")] * times


def test_throttling_is_waited_out(client: Any, take: Take) -> None:
    deliver(client, BUCKET, "legacy overwrite", "a1", {"cur-1.csv.gz": report("4")})
    take.door.refusals = busy(3)
    take()
    assert (take.billed(), take.door.asked[:4]) == (4, [take.door.asked[0]] * 4)


def test_throttling_without_end_is_named(client: Any, take: Take, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("botocore.endpoint.time.sleep", waits.append)
    take.door.refusals = busy(100)
    with pytest.raises(Unavailable, match=rf"s3://pay/bills: the store is busy \(SlowDown\), {ATTEMPTS} tries failed"):
        take()
    assert (len(take.door.asked), len(waits)) == (ATTEMPTS, ATTEMPTS - 1)
    assert sum(waits) > 0


REGION = "<Region>eu-west-1</Region>"


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        ((403, "AccessDenied", ""), Refused, r"access is denied \(AccessDenied\).*s3:ListBucket.*s3:GetObject.*kms:Decrypt"),
        ((301, "PermanentRedirect", REGION), BadInput, "lies in another region.*--region eu-west-1"),
        ((400, "AuthorizationHeaderMalformed", REGION), BadInput, "lies in another region.*--region eu-west-1"),
    ],
)
def test_refusals_name_the_permission_or_the_region(
    client: Any, take: Take, answer: tuple[int, str, str], error: type[Exception], words: str
) -> None:
    take.door.refusals = [answer] * 9
    with pytest.raises(error, match=words):
        take.store().listed()


def test_a_file_that_may_be_listed_and_not_read(client: Any, take: Take) -> None:
    deliver(client, BUCKET, "legacy overwrite", "a1", {"cur-1.csv.gz": report("4")})

    def forbid(path: str) -> None:
        if path.endswith(".json"):
            take.door.refusals = [(403, "AccessDenied", "")] * 5

    take.door.on_get = forbid
    with pytest.raises(Refused, match=r"cur-1\.csv\.gz: access is denied"):
        take()


@pytest.mark.parametrize(
    ("region", "partition", "host"),
    [("us-east-1", "aws", "s3.amazonaws.com"), ("cn-north-1", "aws-cn", "s3.cn-north-1.amazonaws.com.cn"),
     ("cn-northwest-1", "aws-cn", "s3.cn-northwest-1.amazonaws.com.cn")],
)  # fmt: skip
def test_the_partition_follows_from_the_region(moto_url: str, region: str, partition: str, host: str) -> None:
    assert boto3.Session().get_partition_for_region(region) == partition
    assert S3Files("s3://pay/bills", S3Settings(region=region)).endpoint.endswith(host)


def test_a_bucket_in_china_is_read(moto_url: str, take: Take) -> None:
    china = s3(moto_url, "cn-north-1")
    china.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "cn-north-1"})
    deliver(china, BUCKET, "legacy create-new", "a1", {"cur-1.csv.gz": report("1")})
    (found,) = find_deliveries(take.store("cn-north-1"), needs_manifest=True)
    assert (found.delivery_id, found.missing) == ("a1", ())


def test_the_manifests_copies_are_one_delivery() -> None:
    copies, keys = keys_of("legacy create-new", "a1", ["cur-1.csv.gz"])
    assert (len(copies), keys) == (2, ["bills/cur/20260701-20260801/a1/cur-1.csv.gz"])
    assert b'"assemblyId": "a1"' in manifest_of("legacy create-new", "a1", keys, BUCKET)
