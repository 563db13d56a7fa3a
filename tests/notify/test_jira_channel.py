"""Jira, Cloud and Data Center, on a local server that refuses what Jira refuses: one issue per incident whatever happens."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
from jira_vendor import EMAIL, TOKEN, Jira
from told_incidents import MemoryTickets, effects
from vendor_server import Vendor, serving

from control.notify.http_call import Caller
from control.notify.jira import JiraEffector, JiraSettings

FIRST, CHANGED, OVER = effects()


@pytest.fixture(params=["cloud", "datacenter"])
def jira(request: pytest.FixtureRequest) -> Jira:
    return Jira(is_cloud=request.param == "cloud")


@pytest.fixture
def vendor(jira: Jira) -> Iterator[Vendor]:
    with serving(jira.answer) as found:
        yield found


def channel(vendor: Vendor, jira: Jira, tickets: MemoryTickets | None = None, token: str = TOKEN) -> JiraEffector:
    settings = JiraSettings(
        vendor.url, "OPS", lambda: token, "cloud" if jira.is_cloud else "datacenter", EMAIL if jira.is_cloud else ""
    )
    return JiraEffector(settings, tickets or MemoryTickets(), Caller(allow_private=True, timeout_s=5))


def test_an_incident_is_one_issue_with_comments_and_is_done_when_it_is_over(vendor: Vendor, jira: Jira) -> None:
    ops = channel(vendor, jira)
    assert [ops.deliver(e).outcome for e in (FIRST, CHANGED, OVER)] == ["delivered"] * 3
    (issue,) = jira.issues.values()
    assert issue["summary"] == "[PAGE] tenant:acme/red: breaker open"
    assert (len(issue["comments"]), jira.statuses[issue["status"]][0]) == (2, "Done")
    told = json.dumps(issue["description"], ensure_ascii=False)
    assert "95.25 of cap 100 USD this day" in told
    assert "原因" in told


def test_the_same_key_again_acts_once(vendor: Vendor, jira: Jira) -> None:
    ops = channel(vendor, jira)
    for effect in (FIRST, FIRST, CHANGED, CHANGED, OVER, OVER):
        assert ops.deliver(effect).outcome == "delivered"
    assert [len(i["comments"]) for i in jira.issues.values()] == [2]


def test_killed_between_send_and_mark_the_issue_is_found_by_asking(vendor: Vendor, jira: Jira) -> None:
    tickets = MemoryTickets()
    vendor.lost = "/issue"
    assert channel(vendor, jira, tickets).deliver(FIRST).outcome == "retry"
    assert len(jira.issues) == 1
    assert channel(vendor, jira, tickets).deliver(FIRST).outcome == "delivered"
    assert list(jira.issues) == ["OPS-1"]
    assert tickets.held[12].external_id == "OPS-1"


def test_an_issue_begun_and_not_found_yet_is_waited_for(vendor: Vendor, jira: Jira) -> None:
    tickets = MemoryTickets(waits=42)
    channel(vendor, jira, tickets).deliver(FIRST)
    tickets.held.update({12: MemoryTickets().begin(12)[0]})
    jira.lags = True
    found = channel(vendor, jira, tickets).deliver(FIRST)
    assert (found.outcome, found.retry_after_s) == ("retry", 42)
    jira.lags = False
    assert channel(vendor, jira, tickets).deliver(FIRST).outcome == "delivered"
    assert list(jira.issues) == ["OPS-1"]


def test_somebody_elses_issue_with_the_label_is_not_taken_for_ours(vendor: Vendor, jira: Jira) -> None:
    channel(vendor, jira).deliver(FIRST)
    jira.issues["OPS-1"]["properties"] = {}
    channel(vendor, jira).deliver(FIRST)
    assert list(jira.issues) == ["OPS-1", "OPS-2"]


@pytest.mark.parametrize(
    ("status", "headers", "outcome", "after"),
    [(429, {"retry-after": "17"}, "retry", 17), (503, {}, "retry", 0), (401, {}, "failed", 0), (403, {}, "failed", 0)],
)
def test_trouble_is_judged(vendor: Vendor, jira: Jira, status: int, headers: dict[str, str], outcome: str, after: int) -> None:
    vendor.trouble = (status, headers)
    found = channel(vendor, jira).deliver(FIRST)
    assert (found.outcome, found.retry_after_s) == (outcome, after)
    assert jira.issues == {}


def test_a_refused_field_is_named(vendor: Vendor, jira: Jira) -> None:
    settings = JiraSettings(vendor.url, "OPS", lambda: TOKEN, "cloud" if jira.is_cloud else "datacenter", EMAIL, issue_type="Bug")
    ops = JiraEffector(settings, MemoryTickets(), Caller(allow_private=True))
    assert ops.deliver(FIRST).detail == "HTTP 400: Jira does not take it (fields: issuetype)"


def test_a_workflow_without_an_end_is_told_and_does_not_fail(vendor: Vendor, jira: Jira) -> None:
    jira.statuses = jira.statuses[:2]
    found = channel(vendor, jira).deliver(OVER)
    assert (found.outcome, found.detail) == ("delivered", "OPS-1: no transition from To Do leads to done")


def test_status_and_assignee_are_read_back(vendor: Vendor, jira: Jira) -> None:
    tickets = MemoryTickets()
    ops = channel(vendor, jira, tickets)
    ops.deliver(FIRST)
    jira.issues["OPS-1"] |= {"status": 1, "assignee": {"displayName": "Bob"}}
    read = ops.read(tickets.held[12])
    assert (read.status, read.assignee, read.url) == ("In Progress", "Bob", f"{vendor.url}/browse/OPS-1")


def test_the_token_is_nowhere(vendor: Vendor, jira: Jira, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        told = [channel(vendor, jira, token="wr0ng-t0ken").deliver(FIRST).detail]
        vendor.url = "http://127.0.0.1:1"
        told.append(channel(vendor, jira).deliver(FIRST).detail)
    assert told == ["HTTP 401: Jira does not take it", "no answer from Jira (ConnectError)"]
    assert "t0ken" not in caplog.text
