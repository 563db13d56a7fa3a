"""Who a charge belongs to: one form of ids, ordered rules, no guess; and what is suggested instead."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.charge_join import (
    Assignment,
    Inventory,
    Machine,
    Node,
    PersonMatch,
    Resolution,
    Subject,
    identity_key,
    names_in_tags,
    overlaps,
    resolve,
)
from core.match_suggest import Billed, Serving, suggest

T0 = datetime(2026, 7, 1, tzinfo=UTC)
AUGUST = datetime(2026, 8, 1, tzinfo=UTC)
AZURE = "/subscriptions/0a/resourceGroups/RG/providers/Microsoft.Compute/virtualMachines/VM-1"


def machine(node: str, provider_id: str = "", *, cluster: str = "lab", since: datetime = T0, **more: Any) -> Machine:
    return Machine(Node(cluster, node), since, provider_id=provider_id, **more)


def subject(resource: str = "i-1", first: datetime = T0, last: datetime = AUGUST, **names: str) -> Subject:
    rules = {"tag": "node tag", "name": "name"}
    told = tuple((rules[key], value) for key, value in names.items())
    return Subject("aws", resource, "", "p4d.24xlarge", told, first, last)  # type: ignore[arg-type]


def decided(one: Subject, *machines: Machine, said: tuple[PersonMatch, ...] = ()) -> Resolution:
    return resolve([one], Inventory(machines, said))[one]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("i-0ABC", "i-0abc"),
        ("arn:aws:ec2:us-east-1:012345678901:instance/i-0abc", "i-0abc"),
        ("arn:aws-cn:ec2:cn-north-1:012345678901:instance/i-0abc", "i-0abc"),
        ("aws:///us-east-1a/i-0abc", "i-0abc"),
        ("cn-hangzhou.i-bp1xyz", "i-bp1xyz"),
        ("qcloud:///800002/ins-3kx9", "ins-3kx9"),
        (AZURE, AZURE.lower()),
        (f"azure://{AZURE.upper()}", AZURE.lower()),
        ("gce://proj/us-central1-a/Gpu-1", "proj/us-central1-a/gpu-1"),
        ("//compute.googleapis.com/projects/proj/zones/us-central1-a/instances/gpu-1", "proj/us-central1-a/gpu-1"),
        ("arn:aws:ec2:us-east-1:0:capacity-reservation/cr-1", "arn:aws:ec2:us-east-1:0:capacity-reservation/cr-1"),
        (" rack-7 ", "rack-7"),
    ],
)
def test_the_ways_an_id_is_written_are_one(text: str, key: str) -> None:
    assert identity_key(text) == key


@pytest.mark.parametrize(
    ("tags", "own", "names"),
    [
        ({"aws:eks:node": "ip-1"}, (), [("node tag", "ip-1")]),
        ({"aws_eks_node": "ip-1", "user_name": "web"}, (), [("node tag", "ip-1"), ("name", "web")]),
        ({"user:kubernetes.io/hostname": "h1", "user:Name": "h1"}, (), [("name", "h1")]),
        ({"user:rack": "r7", "team": "a"}, ("Rack",), [("name", "r7")]),
        ({"Name": "", "aws:eks:node": None}, (), []),
    ],
)
def test_names_of_machines_in_tags(tags: dict[str, object], own: tuple[str, ...], names: list[tuple[str, str]]) -> None:
    assert list(names_in_tags(tags, own)) == names


N1 = Node("lab", "n1")


@pytest.mark.parametrize(
    ("one", "machines", "rule"),
    [
        (subject("i-1"), [machine("i-1")], "instance id"),
        (subject("i-1"), [machine("n1", "aws:///us-east-1a/i-1")], "provider id"),
        (subject("i-1", tag="n1"), [machine("n1")], "node tag"),
        (subject("i-1", name="N1"), [machine("n1")], "name"),
        (subject("//host/servers/n1"), [machine("n1")], "name"),
        (subject("i-1", tag="n1", name="n2"), [machine("n1"), machine("n2")], "node tag"),
        (subject("i-1", tag="n2"), [machine("n1", "i-1"), machine("n2")], "provider id"),
    ],
)
def test_the_first_rule_that_names_a_machine_decides(one: Subject, machines: list[Machine], rule: str) -> None:
    found = decided(one, *machines)
    assert [(a.node, a.matched_by) for a in found.assignments] == [(machines[0].node, rule)]


def test_nothing_is_guessed() -> None:
    assert decided(subject("i-1"), machine("n1", gpus=(("A100-40GB", 8),))).reason == "no machine"
    assert decided(Subject("aws", "", "", "p4d.24xlarge", (), T0, AUGUST), machine("n1")).reason == "names no machine"
    two = decided(subject("i-1", tag="n1"), machine("n1"), machine("n1", cluster="edge"))
    assert (two.assignments, two.reason, two.candidates) == ((), "several machines", (Node("edge", "n1"), N1))


def test_time_tells_two_machines_of_one_name_apart() -> None:
    gone = Machine(Node("edge", "n1"), T0 - timedelta(days=60), T0 - timedelta(days=30))
    assert decided(subject("i-1", tag="n1"), machine("n1"), gone).assignments[0].node == N1


def test_a_node_known_as_another_instance_is_not_matched_by_name() -> None:
    assert decided(subject("i-2", name="n1"), machine("n1"), machine("n1", "i-1")).reason == "no machine"
    before = subject("i-2", T0 - timedelta(days=20), T0 - timedelta(days=10), name="n1")
    assert decided(before, machine("n1", since=T0 - timedelta(days=30)), machine("n1", "i-1")).assignments[0].node == N1


def test_a_name_that_several_resources_bear_at_one_time_decides_for_none() -> None:
    one, other, later = (
        subject("i-1", name="n1"),
        subject("i-2", name="n1"),
        subject("i-3", AUGUST, AUGUST + timedelta(days=9), name="n1"),
    )
    found = resolve([one, other, later], Inventory([machine("n1")]))
    assert [found[s].reason for s in (one, other)] == ["several resources"] * 2
    assert found[later].assignments[0].node == N1


def test_a_person_comes_first_and_the_rules_fill_the_rest_of_the_time() -> None:
    at, to = T0 + timedelta(days=3), T0 + timedelta(days=5)
    said = (PersonMatch(1, "I-1", Node("lab", "n2"), at, to),)
    found = decided(subject("i-1"), machine("n1", "i-1"), machine("n2"), said=said)
    assert set(found.assignments) == {
        Assignment(Node("lab", "n2"), "person", at, to),
        Assignment(N1, "provider id", None, at),
        Assignment(N1, "provider id", to, None),
    }
    ignored = decided(subject("i-1"), machine("n1", "i-1"), said=(PersonMatch(1, "i-1", None),))
    assert ignored.assignments == (Assignment(None, "person"),)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 10)), max_size=4))
def test_assignments_never_overlap_and_cover_all_time(spans: list[tuple[int, int]]) -> None:
    hour = timedelta(hours=1)
    said: list[PersonMatch] = []
    for number, (start, long) in enumerate(spans):
        match = PersonMatch(number, "i-1", Node("lab", "n2"), T0 + start * hour, T0 + (start + long) * hour)
        if not any(overlaps(match, other) for other in said):
            said.append(match)
    found = decided(subject("i-1"), machine("n1", "i-1"), machine("n2"), said=tuple(said)).assignments
    for at in (T0 + n * hour for n in range(-1, 60)):
        held = [a for a in found if (a.since is None or a.since <= at) and (a.until is None or at < a.until)]
        assert len(held) == 1
        person = any(m.valid_from and m.valid_to and m.valid_from <= at < m.valid_to for m in said)
        assert held[0].matched_by == ("person" if person else "provider id")


def billed(resource: str = "i-9", **more: Any) -> Billed:
    given = {
        "instance_type": "p4d.24xlarge",
        "gpu": "A100-40GB",
        "gpus": 8,
        "names": (),
        "candidates": (),
        "first": T0,
        "last": AUGUST,
    }
    return Billed(resource, **{**given, **more})


def serving(node: str = "n1", **more: Any) -> Serving:
    given = {"since": T0, "until": None, "gpus": (("A100", 8),), "uncharged": True}
    return Serving(Node("lab", node), **{**given, **more})


@pytest.mark.parametrize(
    ("one", "node", "score"),
    [
        (billed(), serving(), "0.60"),  # GPUs, time, no charge
        (billed(), serving(instance_types=("p4d.24xlarge",)), "0.70"),
        (billed(names=("gpu-node-11",)), serving("gpu-node-1"), "0.90"),
        (billed(candidates=(N1,)), serving(uncharged=False), "1.00"),
        (billed(reserved=True), serving(uncharged=False), "0.50"),
        (billed(), serving(since=T0 + timedelta(days=62)), "0.40"),
    ],
)
def test_a_suggestion_names_what_speaks_for_it(one: Billed, node: Serving, score: str) -> None:
    found = suggest(one, [node])
    assert found is not None
    assert (found.score, found.node) == (Decimal(score), node.node)
    assert found.reason


def test_time_alone_and_a_node_with_its_own_charges_suggest_nothing() -> None:
    assert suggest(billed(), [serving(gpus=(("L4", 8),))]) is None
    assert suggest(billed(gpu="L4", gpus=1), [serving(gpus=(("L40S", 1),))]) is None
    assert suggest(billed(), [serving(uncharged=False)]) is None
    assert suggest(billed(), []) is None
