"""Which tags a machine should have: one tenant or none, AWS's limits, only what differs, and nothing twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import BadInput
from core.tag_plan import MOST_TAGS, Machine, TagChange, TagKeys, arn_of, batches, partition_of, plan_tags, wanted_tags
from core.usage import Deployment

KEYS = TagKeys()
CHAT, CODE = Deployment("eks", "prod", "qwen3-32b"), Deployment("eks", "prod", "qwen3-coder")
ID = "i-0123456789abcdef0"
ARN = f"arn:aws:ec2:us-east-1:111122223333:instance/{ID}"


def machine(
    *teams: tuple[str, str], deployments: tuple[Deployment, ...] = (CHAT,), resource: str = ID, region: str = "us-east-1"
) -> Machine:
    return Machine(resource, "111122223333", region, "node1", frozenset(deployments), frozenset(teams))


@pytest.mark.parametrize(
    ("teams", "deployments", "tags", "notes"),
    [
        ((("acme", "search"),), (CHAT,), {"org": "acme", "team": "search", "deployment": "eks/prod/qwen3-32b"}, 0),
        ((("acme", "search"), ("acme", "ads")), (CHAT,), {"org": "acme", "deployment": "eks/prod/qwen3-32b"}, 1),
        ((("acme", "search"), ("bolt", "search")), (CHAT,), {"deployment": "eks/prod/qwen3-32b"}, 2),
        ((("acme", "search"),), (CHAT, CODE), {"org": "acme", "team": "search"}, 1),
        ((), (CHAT,), {"deployment": "eks/prod/qwen3-32b"}, 0),
        ((("", ""),), (CHAT,), {"deployment": "eks/prod/qwen3-32b"}, 0),
        ((("acme", ""),), (CHAT,), {"org": "acme", "deployment": "eks/prod/qwen3-32b"}, 0),
        ((("acme", ""), ("acme", "search")), (CHAT,), {"org": "acme", "deployment": "eks/prod/qwen3-32b"}, 1),
        ((), (), {}, 0),
        ((("a" * 257, "x#y"),), (), {}, 2),
        ((("北京", "搜索"),), (), {"org": "北京", "team": "搜索"}, 0),
    ],
)
def test_a_shared_machine_has_no_tenant(
    teams: tuple[tuple[str, str], ...], deployments: tuple[Deployment, ...], tags: dict[str, str], notes: int
) -> None:
    said, why = wanted_tags(machine(*teams, deployments=deployments), KEYS)
    assert (said, len(why)) == ({f"tokenfuse:{name}": value for name, value in tags.items()}, notes)


@pytest.mark.parametrize(
    ("resource", "region", "arn"),
    [
        (ID, "us-east-1", ARN),
        (ID, "cn-north-1", f"arn:aws-cn:ec2:cn-north-1:111122223333:instance/{ID}"),
        (ID, "us-gov-west-1", f"arn:aws-us-gov:ec2:us-gov-west-1:111122223333:instance/{ID}"),
        ("arn:aws-cn:ec2:cn-north-1:1:instance/i-1", "cn-north-1", "arn:aws-cn:ec2:cn-north-1:1:instance/i-1"),
        ("vol-0123456789abcdef0", "us-east-1", None),
        (ID, "", None),
    ],
)
def test_arns_are_of_their_partition(resource: str, region: str, arn: str | None) -> None:
    assert arn_of(machine(resource=resource, region=region)) == arn
    assert partition_of("eu-west-1") == "aws"


def test_only_what_differs_is_changed_and_a_tag_that_is_wrong_now_goes() -> None:
    one = machine(("acme", "search"), ("acme", "ads"))
    there = {"Name": "gpu-1", "tokenfuse:team": "search", "tokenfuse:org": "acme"}
    (change,) = plan_tags([one], {ARN: there}, KEYS)
    assert (dict(change.put), change.drop) == ({"tokenfuse:deployment": "eks/prod/qwen3-32b"}, ("tokenfuse:team",))
    after = {**there, **change.put}
    del after["tokenfuse:team"]
    assert not plan_tags([one], {ARN: after}, KEYS)[0].is_change


def test_a_resource_under_two_nodes_served_both() -> None:
    (change,) = plan_tags([machine(("acme", "a")), machine(("acme", "b"))], {}, KEYS)
    assert "tokenfuse:team" not in change.put


@pytest.mark.parametrize(("others", "blocked"), [(MOST_TAGS - 3, False), (MOST_TAGS - 2, True)])
def test_fifty_tags_are_the_most_and_amazons_own_do_not_count(others: int, blocked: bool) -> None:
    there = {f"k{n}": "" for n in range(others)} | {f"aws:{n}": "" for n in range(9)}
    (change,) = plan_tags([machine(("acme", "search"))], {ARN: there}, KEYS)
    assert (bool(change.blocked), change.is_change) == (blocked, not blocked)


def test_what_has_no_arn_is_said() -> None:
    (change,) = plan_tags([machine(resource="vol-1")], {}, KEYS)
    assert "no instance id or ARN" in change.blocked


@pytest.mark.parametrize(("prefix", "said"), [("aws:x", "AWS's own"), ("x" * 125, "longer than 128"), ("a#", "no tag may have")])
def test_a_prefix_no_tag_may_have(prefix: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        TagKeys(prefix)


CHANGES = st.lists(
    st.builds(
        lambda number, region, put, drop: TagChange(f"arn:{number}", "1", region, "", put, drop),
        st.integers(0, 10**6), st.sampled_from(["us-east-1", "cn-north-1"]),
        st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy"), max_size=2), st.sampled_from([(), ("d",), ("d", "e")]),
    ),
    max_size=80, unique_by=lambda change: change.arn,
)  # fmt: skip


@given(CHANGES)
def test_calls_hold_every_change_once_and_twenty_resources_at_most(changes: list[TagChange]) -> None:
    calls = batches(changes, 20)
    assert all(1 <= len(call.arns) <= 20 for call in calls)
    made = {(arn, key, value) for call in calls for arn in call.arns for key, value in call.put.items()}
    gone = {(arn, key) for call in calls for arn in call.arns for key in call.drop}
    assert made == {(c.arn, key, value) for c in changes for key, value in c.put.items()}
    assert gone == {(c.arn, key) for c in changes for key in c.drop}
    assert sum(len(call.arns) for call in calls) == sum(bool(c.put) + bool(c.drop) for c in changes)
