"""``tokenfuse export focus``: what it prints, how it refuses, and the way into a bucket and back out of it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from cli_command import Command
from explain_world import generate
from moto import mock_aws
from sqlalchemy import Engine

from core.errors import BadInput
from reports.places import place_of

pytestmark = pytest.mark.db
PERIOD = ("--from", "2026-05-02", "--to", "2026-07-01")


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-config"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    with mock_aws():
        client = boto3.client("s3")
        client.create_bucket(Bucket="finops", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
        yield client


def test_json_holds_the_totals_as_text(db: Engine, command: Command, tmp_path: Path) -> None:
    generate(db)
    code, said, _ = command("export", "focus", *PERIOD, "--out", str(tmp_path / "out"))
    assert code == 0
    assert said["totals"] == [{"currency": "USD", "rows": 36, "effective": "480", "with_idle": "480", "origin": "480"}]
    assert [(one["billing_period"], one["invoice_id"]) for one in said["periods"]] == [("2026-05", None), ("2026-06", None)]
    manifest = json.loads(Path(said["periods"][0]["manifest"]).read_text())
    assert (manifest["rows"], manifest["totals"][0]["effective"]) == (said["periods"][0]["rows"], "200")


def test_people_read_where_it_is_and_that_it_equals_the_ledger(db: Engine, command: Command, tmp_path: Path) -> None:
    generate(db)
    code, _, error = command("export", "focus", *PERIOD, "--grain", "day", "--out", str(tmp_path / "out"), as_json=False)
    assert code == 0
    assert "2026-06: " in error
    assert "not final, no invoice" in error
    assert "USD: 480, equal to the ledger." in error


def test_an_empty_ledger_says_so(command: Command, tmp_path: Path) -> None:
    code, _, error = command("export", "focus", *PERIOD, "--out", str(tmp_path / "out"), as_json=False)
    assert (code, "No closed, priced quarter hour in this time range" in error) == (0, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--out", "gs://x/y"), "--out: is neither a folder nor a bucket"),
        (("--out", "s3://"), "--out: names no bucket"),
        (("--out", "x", "--name", "a/b"), "--name: must be a word"),
        (("--out", "x", "--from", "2026-06-01T00:15:00Z"), "--from: is not the start of a UTC hour"),
        (("--out", "x", "--to", "2026-05-01"), "window_end: window must end after it starts"),
        (("--out", "x", "--tenant", "acme", "--rows", "both"), "--rows: origin rows are of all tenants"),
    ],
)
def test_a_wrong_wish_names_the_option(command: Command, words: tuple[str, ...], said: str) -> None:
    code, _, error = command("export", "focus", *PERIOD, *words)
    assert (code, said in error) == (2, True)


def test_names_that_a_spreadsheet_would_run_are_made_safe_on_request(db: Engine, command: Command, tmp_path: Path) -> None:
    generate(db)
    words = ("--provider", "=cmd()", "--spreadsheet-safe")
    _, said, _ = command("export", "focus", *PERIOD, "--out", str(tmp_path / "out"), *words)
    assert b",'=cmd()," in gzip.decompress(Path(said["periods"][0]["file"]).read_bytes())


def test_into_a_bucket_and_back_by_its_manifests(db: Engine, command: Command, bucket: Any) -> None:
    generate(db)
    place = "s3://finops/showback"
    for file_format in ("csv", "parquet"):
        code, said, _ = command("export", "focus", *PERIOD, "--out", place, "--format", file_format)
        assert (code, len(said["periods"])) == (0, 2)
    keys = [item["Key"] for item in bucket.list_objects_v2(Bucket="finops")["Contents"]]
    assert [key.rpartition(".")[2] for key in keys] == ["parquet", "parquet", "json", "json"]
    code, said, _ = command("ingest", "bill", place, "--format", "focus")
    assert (code, said["refused"]) == (0, [])
    assert [bill["totals"][0]["effective"] for bill in said["imported"]] == ["200", "280"]


def test_a_bucket_that_is_not_there(db: Engine, command: Command, bucket: Any) -> None:
    generate(db)
    code, _, error = command("export", "focus", *PERIOD, "--out", "s3://nobody/x")
    assert (code, "there is no such bucket" in error) == (2, True)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadInput, match="is a file"):
        place_of(str(tmp_path / "file"))
