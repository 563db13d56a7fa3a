"""What every channel promises, each against its vendor's stand-in on a real socket."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from chat_vendors import BOT_TOKEN, PATH, ROBOT_SECRET, Alertmanager, DingTalk, Feishu, SlackApp, SlackHook, WeCom
from jira_vendor import EMAIL, TOKEN, Jira
from told_incidents import AT, MemoryTickets, effects
from vendor_server import Vendor, serving

from control.notify.alertmanager import AlertmanagerEffector
from control.notify.dingtalk import DingTalkEffector
from control.notify.feishu import FeishuEffector
from control.notify.http_call import Caller
from control.notify.jira import JiraEffector, JiraSettings
from control.notify.slack_bot import SlackBotEffector
from control.notify.slack_webhook import SlackWebhookEffector
from control.notify.wecom import WeComEffector
from core.message import Language, message_of
from core.ports import Effector

FIRST, CHANGED, OVER = effects()
CALLER = Caller(allow_private=True, timeout_s=3)
SECRETS = (TOKEN, BOT_TOKEN, ROBOT_SECRET, "5ecret-t0ken", "t0ken")


@dataclass(frozen=True)
class Setup:
    """``make(url, tickets, language)``; ``askable``: it is asked before anything is sent again."""

    vendor: Callable[[], Any]
    make: Callable[[str, MemoryTickets, Language], Effector]
    askable: bool = False


def _jira(url: str, tickets: MemoryTickets, language: Language) -> Effector:
    return JiraEffector(JiraSettings(url, "OPS", lambda: TOKEN, "cloud", EMAIL, language=language), tickets, CALLER)


SETUPS = {
    "jira": Setup(Jira, _jira, True),
    "slack": Setup(SlackHook, lambda url, t, lang: SlackWebhookEffector(lambda: url + PATH, lang, CALLER)),
    "slack-bot": Setup(
        SlackApp, lambda url, t, lang: SlackBotEffector("C024BE91L", lambda: BOT_TOKEN, lang, t, CALLER, url), True
    ),
    "feishu": Setup(
        Feishu, lambda url, t, lang: FeishuEffector(lambda: url + PATH, lambda: ROBOT_SECRET, lang, CALLER, lambda: AT)
    ),
    "dingtalk": Setup(
        DingTalk,
        lambda url, t, lang: DingTalkEffector(
            lambda: f"{url}/robot/send?access_token=5ecret-t0ken", lambda: ROBOT_SECRET, lang, CALLER, lambda: AT
        ),
    ),
    "wecom": Setup(WeCom, lambda url, t, lang: WeComEffector(lambda: url + PATH, lang, CALLER)),
    "alertmanager": Setup(Alertmanager, lambda url, t, lang: AlertmanagerEffector(url, None, lang, CALLER), True),
}


@pytest.fixture(params=sorted(SETUPS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def world(kind: str) -> Iterator[tuple[Vendor, Any]]:
    taker = SETUPS[kind].vendor()
    with serving(taker.answer) as vendor:
        yield vendor, taker


def kept(taker: Any) -> int:
    """How many things people see."""
    if isinstance(taker, Jira):
        return len(taker.issues) + sum(len(i["comments"]) for i in taker.issues.values())
    return len(taker.alerts) if isinstance(taker, Alertmanager) else len(taker.taken)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_whole_incident_is_delivered(kind: str, world: tuple[Vendor, Any], language: Language) -> None:
    ops = SETUPS[kind].make(world[0].url, MemoryTickets(), language)
    assert [ops.deliver(e).outcome for e in (FIRST, CHANGED, OVER)] == ["delivered"] * 3
    assert kept(world[1]) == 3


def test_where_it_can_be_asked_the_same_key_again_shows_nothing_twice(kind: str, world: tuple[Vendor, Any]) -> None:
    """Each delivery as by a process that was killed before it noted anything."""
    if not SETUPS[kind].askable:
        pytest.skip("at least once, with the same key")
    for effect in (FIRST, FIRST, CHANGED, CHANGED, OVER, OVER, FIRST):
        assert SETUPS[kind].make(world[0].url, MemoryTickets(), "en").deliver(effect).outcome == "delivered"
    assert kept(world[1]) == 3


@pytest.mark.parametrize(
    ("status", "headers", "outcome", "after"),
    [(429, {"retry-after": "17"}, "retry", 17), (500, {}, "retry", 0), (503, {}, "retry", 0), (403, {}, "failed", 0)],
)
def test_trouble_is_judged(
    kind: str, world: tuple[Vendor, Any], status: int, headers: dict[str, str], outcome: str, after: int
) -> None:
    world[0].trouble = (status, headers)
    found = SETUPS[kind].make(world[0].url, MemoryTickets(), "en").deliver(FIRST)
    assert (found.outcome, found.retry_after_s, kept(world[1])) == (outcome, after, 0)


def test_no_secret_is_told_or_logged(kind: str, world: tuple[Vendor, Any], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        told = [SETUPS[kind].make(url, MemoryTickets(), "en").deliver(FIRST) for url in ("http://127.0.0.1:1", world[0].url)]
        refused = replace_caller(kind, world[0].url)
    assert told[0].outcome == "retry"
    assert (refused.outcome, "public" in refused.detail or "https" in refused.detail) == ("failed", True)
    shown = [d.detail for d in [*told, refused]]
    assert not [
        s for s in SECRETS for text in (*shown, *(r.getMessage() for r in caplog.records if r.name != "httpx")) if s in text
    ]


def replace_caller(kind: str, url: str) -> Any:
    """The same channel where private targets are not allowed."""
    ops = SETUPS[kind].make(url, MemoryTickets(), "en")
    if isinstance(ops, JiraEffector):
        ops = JiraEffector(JiraSettings(url, "OPS", lambda: TOKEN, "cloud", EMAIL), MemoryTickets(), Caller())
    else:
        ops = replace(ops, caller=Caller())  # type: ignore[type-var]
    return ops.deliver(FIRST)


@pytest.mark.parametrize(
    ("kind", "code", "outcome"),
    [("feishu", 11232, "retry"), ("feishu", 19021, "failed"), ("dingtalk", 130101, "retry"), ("dingtalk", 310000, "failed"),
     ("wecom", 45009, "retry"), ("wecom", 93000, "failed")],
)  # fmt: skip
def test_robots_codes_inside_200_are_judged(kind: str, code: int, outcome: str) -> None:
    with serving(lambda asked: (200, {"code": code, "errcode": code})) as vendor:
        found = SETUPS[kind].make(vendor.url, MemoryTickets(), "en").deliver(FIRST)
    assert (found.outcome, str(code) in found.detail) == (outcome, True)


@pytest.mark.parametrize(("error", "outcome"), [("ratelimited", "retry"), ("channel_not_found", "failed")])
def test_slacks_words_inside_200_are_judged(error: str, outcome: str) -> None:
    with serving(lambda asked: (200, {"ok": False, "error": error})) as vendor:
        found = SETUPS["slack-bot"].make(vendor.url, MemoryTickets(), "en").deliver(FIRST)
    assert (found.outcome, found.detail) == (outcome, f"Slack says {error}")


def test_slacks_message_is_brought_up_to_date_and_never_back() -> None:
    app = SlackApp()
    with serving(app.answer) as vendor:
        ops = SETUPS["slack-bot"].make(vendor.url, MemoryTickets(), "en")
        for effect in (FIRST, OVER, CHANGED):
            assert ops.deliver(effect).outcome == "delivered"
    root, *replies = app.taken
    assert root["text"].startswith("[RECOVERED] tenant:acme/red")
    assert {r["thread_ts"] for r in replies} == {root["ts"]}
    assert len(replies) == 2


def test_a_post_whose_answer_was_lost_is_found_in_slacks_history() -> None:
    app, tickets = SlackApp(), MemoryTickets()
    with serving(app.answer) as vendor:
        vendor.lost = "chat.postMessage"
        ops = SETUPS["slack-bot"].make(vendor.url, tickets, "en")
        assert [ops.deliver(FIRST).outcome for _ in range(2)] == ["retry", "delivered"]
    assert [m["ts"] for m in app.taken] == [tickets.held[12].external_id]


def test_what_people_wrote_mentions_nobody_in_slack() -> None:
    hook = SlackHook()
    with serving(hook.answer) as vendor:
        loud = replace(FIRST, payload={**FIRST.payload, "reason": "<!channel> & <https://evil|x>"})
        SETUPS["slack"].make(vendor.url, MemoryTickets(), "en").deliver(loud)
    assert "&lt;!channel&gt; &amp;" in hook.taken[0]


def test_alertmanagers_alert_ends_with_the_incident() -> None:
    manager = Alertmanager()
    with serving(manager.answer) as vendor:
        ops = SETUPS["alertmanager"].make(vendor.url, MemoryTickets(), "en")
        ops.deliver(FIRST)
        open_now = {dict(k)["severity"] for k, a in manager.alerts.items() if a["endsAt"] > CHANGED.payload["at"]}
        ops.deliver(OVER)
    assert open_now == {"page"}
    assert {a["endsAt"] for a in manager.alerts.values()} == {OVER.payload["at"]}


@pytest.mark.parametrize("language", ["en", "zh"])
def test_unknown_money_is_said_and_every_amount_has_its_currency(language: Language) -> None:
    facts = dict(message_of("k", OVER.payload, language).facts)
    told = " ".join(facts.values())
    assert ("not known" in told) or ("未知" in told)
    assert "95.25" in told
    assert "USD" in told
