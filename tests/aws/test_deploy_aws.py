"""deploy/aws: every file against what Amazon's own models say, and the policies against a server that enforces them."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path
from typing import Any

import boto3
import botocore.session
import pytest
from botocore.exceptions import ClientError
from botocore.validate import validate_parameters

from core.errors import Refused
from ingest.billing.adapter import BillOptions, Columns
from ingest.billing.aws_cur import NET_COLUMNS, SOURCE_COLUMNS, AwsCur
from ingest.billing.focus import Focus
from ingest.billing.s3_store import S3Files, S3Settings

FOLDER = Path(__file__).parents[2] / "deploy" / "aws"
POLICIES = sorted(path.name for path in FOLDER.glob("*policy*.json")) + sorted(path.name for path in FOLDER.glob("iam-*.json"))
SERVICES = {"tag": "resourcegroupstaggingapi"}
NOT_AN_OPERATION = {"s3:ListBucket"}
"""Actions that are called otherwise than the operations they allow (Service Authorization Reference)."""


def loaded(name: str) -> Any:
    return json.loads((FOLDER / name).read_text())


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


@pytest.mark.parametrize(
    ("name", "service", "operation"),
    [
        ("export-cur2.json", "bcm-data-exports", "CreateExport"),
        ("export-focus-1.2.json", "bcm-data-exports", "CreateExport"),
        ("report.aws-cn.json", "cur", "PutReportDefinition"),
    ],
)
def test_inputs_are_what_the_service_takes(name: str, service: str, operation: str) -> None:
    model = botocore.session.get_session().get_service_model(service)
    shape = model.operation_model(operation).input_shape
    validate_parameters(loaded(name), shape)
    for value, allowed in _enums(loaded(name), shape):
        assert value in allowed


def _enums(value: Any, shape: Any) -> list[tuple[Any, list[str]]]:
    """Every (value, what its enumeration allows): botocore checks types and lengths, not these."""
    if shape.type_name == "structure":
        return [found for key, one in value.items() for found in _enums(one, shape.members[key])]
    if shape.type_name == "list":
        return [found for one in value for found in _enums(one, shape.member)]
    return [(value, shape.enum)] if shape.type_name == "string" and shape.enum else []


@pytest.mark.parametrize("name", POLICIES)
def test_policies_keep_to_the_grammar_and_their_partition(name: str) -> None:
    policy, partition = loaded(name), name.split(".")[1]
    assert set(policy) == {"Version", "Statement"}
    assert policy["Version"] == "2012-10-17"
    sids = [statement["Sid"] for statement in policy["Statement"]]
    assert len(set(sids)) == len(sids)
    for statement in policy["Statement"]:
        assert set(statement) <= {"Sid", "Effect", "Principal", "Action", "Resource", "Condition"}
        assert statement["Effect"] == "Allow"
        assert re.fullmatch("[A-Za-z0-9]+", statement["Sid"])
        for arn in re.findall(r'"(arn:[^"]*)"', json.dumps(statement)):
            assert arn.split(":")[1] == partition
        for action in listed(statement["Action"]):
            assert "*" not in action
            service, _, operation = action.partition(":")
            known = botocore.session.get_session().get_service_model(SERVICES.get(service, service)).operation_names
            assert operation in known or action in NOT_AN_OPERATION, action


def test_reading_changes_nothing_and_china_asks_for_no_service_it_has_not() -> None:
    for partition in ("aws", "aws-cn"):
        actions = [a for s in loaded(f"iam-read.{partition}.json")["Statement"] for a in listed(s["Action"])]
        assert all(re.match("Get|List|Describe", action.partition(":")[2]) for action in actions)
    text = "".join(
        (FOLDER / f"{name}.aws-cn.json").read_text() for name in ("iam-read", "iam-write-back", "bucket-policy", "report")
    )
    assert "bcm-data-exports" not in text
    assert "invoicing" not in text


def columns_of(name: str) -> list[str]:
    query = loaded(name)["Export"]["DataQuery"]["QueryStatement"]
    found = re.fullmatch(r"SELECT ([\w, ]+) FROM \w+", query)
    assert found is not None
    names = found[1].split(", ")
    assert len(set(names)) == len(names)
    return names


def test_the_cost_export_has_every_column_the_import_reads() -> None:
    columns = Columns([(name, name) for name in columns_of("export-cur2.json")])
    wanted = {**SOURCE_COLUMNS, **{f"net {alias}": name for alias, name in NET_COLUMNS.items()}}
    assert [name for name in wanted.values() if columns.find(name) is None] == []
    plan = AwsCur().plan(columns, BillOptions(net=True))
    assert "NULL::VARCHAR" not in (
        plan.selects[0].columns["capacity_reservation_id"] + plan.selects[0].columns["parent_resource_id"]
    )
    assert columns.find("resource_tags") is not None


def test_the_focus_export_has_every_column_the_import_reads() -> None:
    plan = Focus("aws").plan(Columns([(name, name) for name in columns_of("export-focus-1.2.json")]), BillOptions())
    assert set(plan.money) >= {"billed", "effective", "list", "contracted"}


def test_exports_are_hourly_with_resources_and_split_cost() -> None:
    (settings,) = loaded("export-cur2.json")["Export"]["DataQuery"]["TableConfigurations"].values()
    assert (settings["TIME_GRANULARITY"], settings["INCLUDE_RESOURCES"], settings["INCLUDE_SPLIT_COST_ALLOCATION_DATA"]) == (
        "HOURLY", "TRUE", "TRUE",
    )  # fmt: skip
    report = loaded("report.aws-cn.json")["ReportDefinition"]
    assert (report["TimeUnit"], "RESOURCES" in report["AdditionalSchemaElements"]) == ("HOURLY", True)


def test_the_template_is_well_formed_and_says_what_the_json_says() -> None:
    from cfnlint.api import lint

    text = (FOLDER / "first-bill.yaml").read_text()
    assert [str(match) for match in lint(text, regions=["us-east-1"]) if match.rule.id[0] != "I"] == []
    for name in ("export-cur2.json", "export-focus-1.2.json"):
        query = loaded(name)["Export"]["DataQuery"]["QueryStatement"]
        assert query in " ".join(text.split())
    for statement in loaded("iam-read.aws.json")["Statement"]:
        assert all(f'"{action}"' in text for action in listed(statement["Action"]))


@pytest.fixture
def reader(moto_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A bucket with a delivery and another object; the environment's keys are now a user's with the read policy alone."""
    s3 = boto3.client("s3", endpoint_url=moto_url)
    s3.create_bucket(Bucket="my-bills")
    for key in ("tokenfuse/cur/x-Manifest.json", "private/salaries.csv"):
        s3.put_object(Bucket="my-bills", Key=key, Body=b"{}")
    iam = boto3.client("iam", endpoint_url=moto_url)
    iam.create_user(UserName="tokenfuse")
    policy = (FOLDER / "iam-read.aws.json").read_text().replace("YOUR-BUCKET", "my-bills")
    iam.put_user_policy(UserName="tokenfuse", PolicyName="read", PolicyDocument=policy)
    keys = iam.create_access_key(UserName="tokenfuse")["AccessKey"]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", keys["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", keys["SecretAccessKey"])
    enforce(moto_url, 0)
    return moto_url


TEXT = {"Content-Type": "text/plain"}


def enforce(url: str, after: float) -> None:
    request = urllib.request.Request(f"{url}/moto-api/reset-auth", data=str(after).encode(), method="POST", headers=TEXT)
    urllib.request.urlopen(request, timeout=60).read()


def test_the_read_policy_lets_tokenfuse_read_its_prefix_and_nothing_else(reader: str) -> None:
    try:
        store = S3Files("s3://my-bills/tokenfuse", S3Settings(endpoint_url=reader, region="us-east-1"))
        assert [stored.key for stored in store.listed()] == ["tokenfuse/cur/x-Manifest.json"]
        assert store.read("tokenfuse/cur/x-Manifest.json") == b"{}"
        with pytest.raises(Refused, match="access is denied"):
            store.read("private/salaries.csv")
        for denied in (
            lambda s3: s3.put_object(Bucket="my-bills", Key="tokenfuse/x", Body=b""),
            lambda s3: s3.delete_object(Bucket="my-bills", Key="tokenfuse/cur/x-Manifest.json"),
        ):
            with pytest.raises(ClientError, match="AccessDenied"):
                denied(boto3.Session().client("s3", endpoint_url=reader))
    finally:
        enforce(reader, float("inf"))
