"""``tokenfuse tags`` on a real database, with moto's tagging over HTTP and Cost Explorer as botocore's model of it says."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest
from aws_servers import Door
from bill_lines import cur_line, write_cur
from botocore.stub import Stubber
from cli_command import Command
from sqlalchemy import Engine, insert

from control.fleet import aws_tags
from control.fleet.aws_session import aws_clients
from control.fleet.aws_tags import activate_tags, apply_tags, backfill_tags, cost_tags
from core.errors import BadInput, Refused, Unavailable
from core.tag_plan import TagChange
from models.audit_repo import list_audit, verify_chain
from models.partitions import ensure_months
from models.tables import UsageDayRow

pytestmark = pytest.mark.db
DAY = datetime(2026, 7, 1, tzinfo=UTC)


def use(db: Engine, model: str, team: str) -> None:
    row = {
        "day": DAY, "cluster": "eks", "namespace": "prod", "model_id": model, "org": "acme", "team": team, "project": "",
        "user_id": "", "key_id": "", "service_tier": "P1", "status": "ok", "usage_source": "exact", "workload_class": 0,
        "requests": 1, "output": 5,
    }  # fmt: skip
    with db.begin() as connection:
        ensure_months(connection, [DAY])
        connection.execute(insert(UsageDayRow), [row])


@pytest.fixture
def machines(moto_url: str, db: Engine, command: Command, tmp_path: Path) -> list[str]:
    """Two EC2 instances in moto: the first serves one team, the second two; both are billed, and nodes of the inventory."""
    ec2 = boto3.client("ec2", endpoint_url=moto_url, region_name="us-east-1")
    image = ec2.describe_images()["Images"][0]["ImageId"]
    made = ec2.run_instances(ImageId=image, MinCount=2, MaxCount=2, InstanceType="g5.xlarge")["Instances"]
    ids: list[str] = [one["InstanceId"] for one in made]
    region = {"product/regionCode": "us-east-1", "lineItem/UsageEndDate": "2026-07-01T01:00:00Z"}
    lines = [cur_line("Usage", {"unblended": "1"}, resource=i, account="123456789012", more=region) for i in ids]
    command("ingest", "bill", str(write_cur(tmp_path / "july.csv", lines)), "--format", "aws-cur")
    for number, (node, model) in enumerate(zip(ids, ("chat", "code"), strict=True)):
        command(
            "node", "declare", "--target", f"http://e{number}", "--node", node, "--deployment", f"eks/prod/{model}",
            "--gpu", "A10G", "--count", "1", "--from", "2026-06-01",
        )  # fmt: skip
    command("match", "run")
    for model, team in (("chat", "search"), ("code", "search"), ("code", "ads")):
        use(db, model, team)
    return ids


JULY = ("--from", "2026-07-01", "--to", "2026-07-02")


def tags_in(url: str, resource: str) -> dict[str, str]:
    ec2 = boto3.client("ec2", endpoint_url=url, region_name="us-east-1")
    found = ec2.describe_tags(Filters=[{"Name": "resource-id", "Values": [resource]}])["Tags"]
    return {tag["Key"]: tag["Value"] for tag in found}


def test_plan_changes_nothing_apply_needs_yes_and_again_nothing_is_left(
    machines: list[str], moto_url: str, command: Command, db: Engine
) -> None:
    code, plan, _ = command("tags", "plan", *JULY, "--endpoint-url", moto_url)
    assert code == 0
    by_node = {change["node"]: change for change in plan}
    assert by_node[machines[0]]["put"] == {
        "tokenfuse:org": "acme", "tokenfuse:team": "search", "tokenfuse:deployment": "eks/prod/chat",
    }  # fmt: skip
    assert by_node[machines[1]]["put"] == {"tokenfuse:org": "acme", "tokenfuse:deployment": "eks/prod/code"}
    assert by_node[machines[1]]["notes"] == ["no team: it serves 2"]
    assert tags_in(moto_url, machines[0]) == {}

    code, _, error = command("tags", "apply", *JULY, "--endpoint-url", moto_url)
    assert (code, "--yes: is missing" in error, tags_in(moto_url, machines[0])) == (2, True, {})

    code, done, _ = command("tags", "apply", "--yes", "--by", "ann", *JULY, "--endpoint-url", moto_url)
    assert (code, {one["error"] for one in done}) == (0, {""})
    assert tags_in(moto_url, machines[0])["tokenfuse:team"] == "search"
    assert "tokenfuse:team" not in tags_in(moto_url, machines[1])

    code, again, _ = command("tags", "apply", "--yes", *JULY, "--endpoint-url", moto_url)
    assert (code, again) == (0, [])
    with db.connect() as connection:
        (record,) = [one for one in list_audit(connection) if one.action == "tags.apply"]
        assert (record.actor, len(record.detail["changed"]), verify_chain(connection).intact) == ("ann", 2, True)


def test_a_machine_that_came_to_serve_two_teams_loses_its_team(
    machines: list[str], moto_url: str, command: Command, db: Engine
) -> None:
    command("tags", "apply", "--yes", *JULY, "--endpoint-url", moto_url)
    use(db, "chat", "ads")
    code, done, _ = command("tags", "apply", "--yes", *JULY, "--endpoint-url", moto_url)
    assert (code, [(one["what"], one["keys"]) for one in done]) == (0, [("drop", ["tokenfuse:team"])])
    assert set(tags_in(moto_url, machines[0])) == {"tokenfuse:org", "tokenfuse:deployment"}


def test_people_read_the_plan_and_the_empty_state(machines: list[str], moto_url: str, command: Command) -> None:
    _, shown, error = command("tags", "plan", *JULY, "--endpoint-url", moto_url, as_json=False)
    assert "tokenfuse:team=search" in shown
    assert "2 of 2 resources would change" in error
    _, shown, _ = command("tags", "plan", "--from", "2026-01-01", "--to", "2026-01-02", as_json=False)
    assert "No AWS machine of a bill is joined" in shown


def test_denied_calls_name_the_permission(machines: list[str], door: Door, command: Command) -> None:
    door.refusals = [(403, "AccessDeniedException", "")] * 3
    code, _, error = command("tags", "plan", *JULY, "--endpoint-url", door.url)
    assert (code, "tag:GetResources" in error) == (1, True)


class Stubbed:
    """One service answered by botocore's stub, which checks parameters and answers against the service's own model."""

    def __init__(self, service: str) -> None:
        self.client = boto3.client(service, region_name="us-east-1")
        self.stub, self.asked = Stubber(self.client), list[tuple[str, str]]()
        self.stub.activate()

    def __call__(self, service: str, region: str) -> Any:
        self.asked.append((service, region))
        return self.client


def change(number: int) -> TagChange:
    return TagChange(f"arn:aws:ec2:us-east-1:1:instance/i-{number:08x}", "1", "us-east-1", "n", {"tokenfuse:org": "acme"})


def test_parts_that_fail_are_named_and_the_rest_is_done(moto_url: str) -> None:
    """45 resources are three calls: one part fails in the first, the second fails whole, the third works."""
    stubbed, changes = Stubbed("resourcegroupstaggingapi"), [change(number) for number in range(45)]
    lost = {changes[3].arn: {"StatusCode": 400, "ErrorCode": "InvalidParameterException", "ErrorMessage": "tag policy"}}
    parts = [[one.arn for one in changes[first : first + 20]] for first in (0, 20, 40)]

    def asked(arns: list[str]) -> dict[str, Any]:
        return {"ResourceARNList": arns, "Tags": {"tokenfuse:org": "acme"}}

    stubbed.stub.add_response("tag_resources", {"FailedResourcesMap": lost}, asked(parts[0]))
    stubbed.stub.add_client_error("tag_resources", "AccessDeniedException", "no", 403, expected_params=asked(parts[1]))
    stubbed.stub.add_response("tag_resources", {}, asked(parts[2]))
    done = apply_tags(stubbed, changes)
    failed = {one.arn: one.error for one in done if one.error}
    assert (len(done), len(failed)) == (45, 21)
    assert failed[changes[3].arn] == "InvalidParameterException (400): tag policy"
    assert "tag:TagResources and ec2:CreateTags" in failed[changes[20].arn]
    stubbed.stub.assert_no_pending_responses()


def test_apply_exits_with_1_when_a_resource_failed(
    machines: list[str], moto_url: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    boto3.client("ec2", endpoint_url=moto_url, region_name="us-east-1").terminate_instances(InstanceIds=machines)
    real = aws_tags._call

    def lose(clients: Any, batch: Any) -> Any:
        return [aws_tags.TagDone(one.arn, one.what, one.keys, "Throttled (400)") for one in real(clients, batch)]

    monkeypatch.setattr(aws_tags, "_call", lose)
    code, done, error = command("tags", "apply", "--yes", *JULY, "--endpoint-url", moto_url)
    assert (code, {one["error"] for one in done}) == (1, {"Throttled (400)"})
    assert "Changed: 0. Failed: 2." in error


KEYS = [f"k{number:02}" for number in range(25)]


def test_activation_is_twenty_a_call_and_its_errors_are_named(moto_url: str) -> None:
    stubbed = Stubbed("ce")

    def asked(keys: list[str]) -> dict[str, Any]:
        return {"CostAllocationTagsStatus": [{"TagKey": key, "Status": "Active"} for key in keys]}

    lost = {"TagKey": "k01", "Code": "TagKeyNotFound", "Message": "no such tag"}
    stubbed.stub.add_response("update_cost_allocation_tags_status", {"Errors": [lost]}, asked(KEYS[:20]))
    stubbed.stub.add_client_error("update_cost_allocation_tags_status", "LimitExceededException", "slow", 400)
    made = activate_tags(stubbed, "eu-west-1", KEYS)
    assert [(one.key, one.status) for one in made[:2]] == [("k00", "Active"), ("k01", "")]
    assert made[1].error == "TagKeyNotFound: no such tag"
    assert all("the service is busy (LimitExceededException)" in one.error for one in made[20:])
    assert stubbed.asked == [("ce", "us-east-1")] * 2


def test_state_of_keys_and_the_partitions_own_region(moto_url: str) -> None:
    stubbed = Stubbed("ce")
    found = {"CostAllocationTags": [{"TagKey": "a", "Type": "UserDefined", "Status": "Inactive"}]}
    stubbed.stub.add_response(
        "list_cost_allocation_tags", found, {"TagKeys": ["a", "b"], "Type": "UserDefined", "MaxResults": 100}
    )
    assert [(one.key, one.status) for one in cost_tags(stubbed, "cn-north-1", ["a", "b"])] == [("a", "Inactive"), ("b", "")]
    assert stubbed.asked == [("ce", "cn-northwest-1")]
    assert aws_clients()("ce", "cn-northwest-1").meta.endpoint_url.endswith(".amazonaws.com.cn")
    with pytest.raises(BadInput, match="aws-us-gov has no Cost Explorer"):
        cost_tags(stubbed, "us-gov-west-1", ["a"])


@pytest.mark.parametrize(
    ("code", "status", "error", "words"),
    [
        ("AccessDeniedException", 400, Refused, "allow ce:StartCostAllocationTagBackfill"),
        ("BackfillLimitExceededException", 400, BadInput, "BackfillLimitExceededException"),
        ("ThrottlingException", 400, Unavailable, "busy"),
        ("UnrecognizedClientException", 400, BadInput, "credentials are refused"),
    ],
)
def test_a_backfill_that_is_refused(moto_url: str, code: str, status: int, error: type[Exception], words: str) -> None:
    stubbed = Stubbed("ce")
    stubbed.stub.add_client_error("start_cost_allocation_tag_backfill", code, "m", status)
    with pytest.raises(error, match=words):
        backfill_tags(stubbed, "us-east-1", DAY)


def test_a_backfill_begins_with_its_month(moto_url: str) -> None:
    stubbed = Stubbed("ce")
    start = "2026-07-01T00:00:00Z"
    said = {"BackfillRequest": {"BackfillFrom": start, "RequestedAt": "2026-08-02T01:00:00Z", "BackfillStatus": "PROCESSING"}}
    stubbed.stub.add_response("start_cost_allocation_tag_backfill", said, {"BackfillFrom": start})
    assert backfill_tags(stubbed, "us-east-1", datetime(2026, 7, 9, tzinfo=UTC))["status"] == "PROCESSING"


def test_activate_shows_first_and_acts_on_yes(
    moto_url: str, command: Command, monkeypatch: pytest.MonkeyPatch, db: Engine
) -> None:
    stubbed = Stubbed("ce")
    monkeypatch.setattr("cli.commands.tags.aws_clients", lambda url: stubbed)
    state = {"CostAllocationTags": [
        {"TagKey": "tokenfuse:org", "Type": "UserDefined", "Status": "Inactive"},
        {"TagKey": "tokenfuse:team", "Type": "UserDefined", "Status": "Active"},
    ]}  # fmt: skip
    stubbed.stub.add_response("list_cost_allocation_tags", state)
    code, _, error = command("tags", "activate")
    assert (code, "Would activate: tokenfuse:org" in error) == (0, True)
    stubbed.stub.add_response("list_cost_allocation_tags", state)
    stubbed.stub.add_response(
        "update_cost_allocation_tags_status", {}, {"CostAllocationTagsStatus": [{"TagKey": "tokenfuse:org", "Status": "Active"}]}
    )
    code, said, _ = command("tags", "activate", "--yes")
    assert [one["status"] for one in said["keys"]] == ["Active", "Active", ""]
    assert code == 1, "the deployment's key was not seen on a billed resource"
    with db.connect() as connection:
        assert list_audit(connection)[0].detail["keys"] == {"tokenfuse:org": "activated"}
