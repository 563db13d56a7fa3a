"""``tokenfuse doctor aws``: S3 and STS over HTTP from moto, the billing services as botocore's models of them say."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from aws_servers import Door
from botocore.stub import Stubber
from s3_exports import deliver, report
from sqlalchemy import Engine, text

from cli.main import main
from control.fleet.aws_session import aws_clients
from core.aws_checks import AwsFacts, Caller, Delivered, ExportFacts, Imported, Unread, examine_aws

NOW = datetime(2026, 8, 3, 12, tzinfo=UTC)
JULY = date(2026, 7, 1)
CUR2 = ExportFacts("cur", "COST_AND_USAGE_REPORT", hourly=True, resources=True, split=True, created_at=NOW - timedelta(hours=3))
DONE = Delivered("cur", JULY, "a1", NOW - timedelta(hours=5))
HELD = Imported("cur", JULY, 2, "a1", is_final=True, invoices=("I-1",))
DENIED = Unread("data exports: access is denied (AccessDeniedException)", "allow bcm-data-exports:ListExports (deploy/aws)")
Command = Callable[..., tuple[int, Any]]


def facts(**changes: Any) -> AwsFacts:
    given: dict[str, Any] = {
        "now": NOW, "place": "s3://pay/bills", "caller": Caller("1", "arn:aws:iam::1:user/t"), "objects": 7, "exports": [CUR2],
        "delivered": [DONE], "imported": [HELD], "tags": {"tokenfuse:org": "Active"}, "invoices": ["I-1"], "closed_month": JULY,
    }  # fmt: skip
    return AwsFacts(**{**given, **changes})


def test_all_is_well() -> None:
    assert {finding.verdict for finding in examine_aws(facts())} == {"pass"}
    assert all(not finding.fix for finding in examine_aws(facts()))


@pytest.mark.parametrize(
    ("changes", "check", "verdict", "reason", "fix"),
    [
        ({"caller": Unread("no credentials", "set them", is_fault=True)}, "identity", "fail", "no credentials", "set them"),
        ({"exports": []}, "export", "fail", "none delivers to s3://pay/bills", "first-bill.yaml"),
        ({"exports": DENIED}, "export", "unknown", "access is denied", "bcm-data-exports:ListExports"),
        ({"exports": [ExportFacts("d", "COST_AND_USAGE_REPORT", False, False, True)]}, "export", "fail",
         "d is not hourly and not with resource ids", "export-cur2.json"),
        ({"exports": [ExportFacts("d", "T", True, True, True, False, "INSUFFICIENT_PERMISSION")]}, "export", "fail",
         "cannot deliver: INSUFFICIENT_PERMISSION", "bucket-policy"),
        ({"delivered": [], "imported": []}, "delivery", "unknown", "the first is due by 2026-08-04 09:00Z", "look again"),
        ({"delivered": [], "now": NOW + timedelta(days=2)}, "delivery", "fail", "was due by 2026-08-04 09:00Z", "bucket policy"),
        ({"delivered": [], "exports": DENIED}, "delivery", "unknown", "up to 24 hours after the export is made", ""),
        ({"now": NOW + timedelta(days=3)}, "delivery", "fail", "3 days ago", "billing console"),
        ({"imported": []}, "months", "fail", "cur 2026-07: delivered, not imported",
         "tokenfuse ingest bill s3://pay/bills --format aws-cur --month 2026-07"),
        ({"imported": [Imported("cur", JULY, 1, "a0", False)]}, "months", "fail", "a newer delivery is there", "ingest"),
        ({"delivered": [Delivered("cur", JULY, "a2", NOW, 3)]}, "months", "unknown", "3 files of its manifest", "an hour"),
        ({"imported": []}, "price source", "unknown", "list price, bill pending: every cost is at list price; the first bill is "
         "due by 2026-08-04 09:00Z", "rates discount"),
        ({"imported": Unread("the database does not run", "start it")}, "price source", "unknown", "does not run", "start it"),
        ({"tags": {"k": "Inactive"}}, "tags", "fail", "k is not active", "tokenfuse tags activate --yes"),
        ({"tags": {"k": ""}}, "tags", "unknown", "on no billed resource yet", "tokenfuse tags plan"),
        ({"invoices": []}, "invoice", "unknown", "none is issued for 2026-07 yet", ""),
        ({"imported": [Imported("cur", JULY, 1, "a1", False)]}, "invoice", "fail", "invoiced as I-1", "import the month again"),
    ],
)  # fmt: skip
def test_what_is_missing_has_a_line_that_mends_it(
    changes: dict[str, Any], check: str, verdict: str, reason: str, fix: str
) -> None:
    (found,) = [finding for finding in examine_aws(facts(**changes)) if finding.check == check]
    assert (found.verdict, reason in found.reason, fix in found.fix) == (verdict, True, True), found


class Account:
    """STS and S3 from moto; the services moto has not from stubs that check every parameter and answer."""

    def __init__(self, url: str) -> None:
        self.real, self.stubs = aws_clients(url), dict[str, tuple[Any, Stubber]]()
        for service in ("bcm-data-exports", "cur", "ce", "invoicing"):
            client = boto3.Session().client(service, region_name="us-east-1")
            self.stubs[service] = (client, Stubber(client))
            self.stubs[service][1].activate()

    def __call__(self, service: str, region: str) -> Any:
        return self.stubs[service][0] if service in self.stubs else self.real(service, region)

    def says(self, service: str, operation: str, answer: dict[str, Any]) -> None:
        self.stubs[service][1].add_response(operation, answer)

    def denies(self, service: str, operation: str) -> None:
        self.stubs[service][1].add_client_error(operation, "AccessDeniedException", "no", 400)

    def has_export(self, created: datetime) -> None:
        shipped = json.loads((Path(__file__).parents[2] / "deploy/aws/export-cur2.json").read_text())["Export"]
        shipped["DestinationConfigurations"]["S3Destination"] |= {"S3Bucket": "pay", "S3Prefix": "bills"}
        arn = "arn:aws:bcm-data-exports:us-east-1:123456789012:export/tokenfuse-cur2"
        status = {"StatusCode": "HEALTHY", "CreatedAt": created}
        self.says(
            "bcm-data-exports", "list_exports", {"Exports": [{"ExportArn": arn, "ExportName": "c", "ExportStatus": status}]}
        )
        self.says("bcm-data-exports", "get_export", {"Export": {"ExportArn": arn, **shipped}})


@pytest.fixture
def account(moto_url: str, monkeypatch: pytest.MonkeyPatch) -> Account:
    made = Account(moto_url)
    monkeypatch.setattr("cli.commands.doctor_aws.aws_clients", lambda url: made)
    boto3.client("s3", endpoint_url=moto_url, region_name="us-east-1").create_bucket(Bucket="pay")
    return made


@pytest.fixture
def command(db_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("TOKENFUSE_SETTINGS", str(tmp_path / "none.toml"))

    def run(*words: str, as_json: bool = True) -> tuple[int, Any]:
        with pytest.raises(SystemExit) as ended:
            main([*words, "--db", db_url, "--data-dir", str(tmp_path / "data"), *(["--json"] if as_json else [])])
        out = capsys.readouterr().out
        return int(ended.value.code or 0), json.loads(out) if as_json else out

    return run


def verdicts(found: list[dict[str, str]]) -> dict[str, str]:
    return {one["check"]: one["verdict"] for one in found}


PLACE = ("--bucket", "pay", "--prefix", "bills")


@pytest.mark.db
def test_from_a_new_export_to_an_imported_bill(account: Account, command: Command, moto_url: str) -> None:
    place = (*PLACE, "--endpoint-url", moto_url)
    account.has_export(datetime.now(UTC) - timedelta(hours=1))
    account.says("cur", "describe_report_definitions", {})
    account.says("ce", "list_cost_allocation_tags", {})
    account.says("invoicing", "list_invoice_summaries", {"InvoiceSummaries": []})
    code, found = command("doctor", "aws", *place)
    assert (code, verdicts(found)) == (0, {
        "identity": "pass", "bucket": "pass", "export": "pass", "delivery": "unknown", "price source": "unknown",
        "tags": "unknown", "invoice": "unknown",
    })  # fmt: skip
    assert "123456789012, partition aws" in found[0]["reason"]

    s3 = boto3.client("s3", endpoint_url=moto_url, region_name="us-east-1")
    deliver(s3, "pay", "export create-new", "e1", {"cur-1.csv.gz": report("1")})
    account.has_export(datetime.now(UTC) - timedelta(hours=20))
    for service, operation in (
        ("cur", "describe_report_definitions"), ("ce", "list_cost_allocation_tags"), ("invoicing", "list_invoice_summaries"),
    ):  # fmt: skip
        account.denies(service, operation)
    code, found = command("doctor", "aws", *place)
    said = {one["check"]: one for one in found}
    assert (code, said["delivery"]["verdict"], said["months"]["verdict"]) == (1, "pass", "fail")
    for check, permission in (("tags", "ce:ListCostAllocationTags"), ("invoice", "invoicing:ListInvoiceSummaries")):
        assert (said[check]["verdict"], permission in said[check]["fix"]) == ("unknown", True)

    words = said["months"]["fix"].split()[1:]
    assert command(*words, "--endpoint-url", moto_url)[0] == 0
    account.has_export(datetime.now(UTC))
    for service, operation in (
        ("cur", "describe_report_definitions"), ("ce", "list_cost_allocation_tags"), ("invoicing", "list_invoice_summaries"),
    ):  # fmt: skip
        account.denies(service, operation)
    code, found = command("doctor", "aws", *place)
    assert (code, verdicts(found)["months"], verdicts(found)["price source"]) == (0, "pass", "pass")


@pytest.mark.db
def test_what_may_not_be_read_is_unknown_and_what_is_wrong_fails(account: Account, command: Command, door: Door) -> None:
    account.denies("bcm-data-exports", "list_exports")
    for service, operation in (
        ("cur", "describe_report_definitions"), ("ce", "list_cost_allocation_tags"), ("invoicing", "list_invoice_summaries"),
    ):  # fmt: skip
        account.denies(service, operation)
    door.refusals = [(403, "AccessDenied", "")]
    code, shown = command("doctor", "aws", *PLACE, "--endpoint-url", door.url, as_json=False)
    assert code == 0
    assert "unknown bucket: s3://pay/bills: access is denied (AccessDenied)" in shown
    assert "s3:ListBucket on the bucket" in shown
    assert "allow bcm-data-exports:ListExports (deploy/aws)" in shown
    assert "0 fail" in shown


@pytest.mark.db
def test_without_credentials_the_rest_is_not_asked(command: Command, moto_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    code, found = command("doctor", "aws", "--endpoint-url", moto_url)
    assert (code, [one["check"] for one in found if one["verdict"] == "fail"]) == (1, ["identity"])


@pytest.mark.db
def test_a_database_without_the_tables_is_said(account: Account, command: Command, moto_url: str, db: Engine) -> None:
    with db.begin() as connection:
        connection.execute(text("ALTER TABLE bill_delivery RENAME TO away"))
    _, shown = command("doctor", "aws", *PLACE, "--endpoint-url", moto_url, as_json=False)
    assert "unknown price source: the database has not the tables of bills" in shown


def test_its_options_are_its_own(command: Command) -> None:
    code, _ = command("doctor", "fleet", "--bucket", "x", as_json=False)
    assert code == 2
