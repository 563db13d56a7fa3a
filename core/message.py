"""What people are told of an incident: one message, rendered by each channel in its own form.

``snapshot`` is what goes into the outbox with the change (JSON, money as decimal strings); ``message_of`` puts it into words of
one language. Pure; plain words; every amount has its currency, what it is of and what state it is in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from core.breaker_values import SYSTEM_ACTOR
from core.incident import Incident, Moment, Severity
from core.money import Money, plain
from core.policy import rfc3339

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")

_WORDS: Mapping[str, tuple[str, str]] = {
    "opened": ("opened", "发生"),
    "changed": ("changed", "变化"),
    "recovered": ("recovered", "已恢复"),
    "acknowledged": ("acknowledged", "已确认"),
    "assigned": ("assigned", "已指派"),
    "commented": ("commented", "有备注"),
    "reminded": ("still open", "仍未处理"),
    "page": ("PAGE", "紧急"),
    "warning": ("WARNING", "警告"),
    "notice": ("NOTICE", "通知"),
    "recovered_word": ("RECOVERED", "已恢复"),
    "shadow": ("in shadow: decided, nothing was done", "影子模式：只判定，不执行"),
    "scope": ("Scope", "范围"),
    "cause": ("Cause", "原因类别"),
    "phase": ("State", "状态"),
    "reason": ("Why", "原因"),
    "actor": ("By", "操作人"),
    "owner": ("Owner", "负责人"),
    "assignee": ("Assigned to", "处理人"),
    "trip": ("Spent at the trip", "触发时花费"),
    "trip_value": (
        "{spend} of cap {cap} {currency} this {period} (budget's basis; running, provisional)",
        "{spend} / 上限 {cap} {currency}，周期 {period}（预算口径；运行中，暂估）",
    ),
    "at_risk": ("Money at risk", "风险金额"),
    "unknown": ("not known", "未知"),
    "estimate": ("estimate", "估算"),
    "overshoot": ("Spent after the trip", "触发后花费"),
    "outcome": ("Outcome", "结果"),
    "since": ("Since", "开始时间"),
    "at": ("At", "时间"),
    "story": ("Whole story", "完整记录"),
}


@dataclass(frozen=True, slots=True)
class Message:
    """``key`` is the effect's; ``thread`` names the incident for good, for channels that look for what they sent already.
    ``facts`` are (label, value) in the order to show; ``is_first``: it opened the incident."""

    key: str
    thread: str
    incident: int
    seq: int
    event: str
    severity: Severity
    is_over: bool
    scope: str
    title: str
    summary: str
    facts: tuple[tuple[str, str], ...]
    started_at: str
    at: str
    can_approve: bool = False

    @property
    def is_first(self) -> bool:
        return self.event == "opened"

    @property
    def text(self) -> str:
        """Title, summary and facts as plain lines."""
        return "\n".join([self.title, self.summary, *(f"{label}: {value}" for label, value in self.facts)])


def snapshot(incident: Incident, moment: Moment) -> dict[str, Any]:
    """The outbox payload of one moment."""
    trip, risk, over = incident.trip, incident.at_risk, incident.overshoot
    return {
        "incident": incident.id,
        "thread": thread_of(incident),
        "seq": moment.seq,
        "event": moment.kind,
        "severity": incident.severity,
        "scope": incident.scope,
        "cause": incident.cause,
        "phase": incident.phase,
        "shadow": incident.shadow,
        "actor": moment.actor,
        "reason": moment.reason,
        "owner": incident.owner,
        "assignee": incident.assignee,
        "is_over": not incident.is_open,
        "outcome": incident.outcome,
        "opened_at": rfc3339(incident.opened_at),
        "at": rfc3339(moment.at),
        "at_risk": _money(risk),
        "overshoot": _money(over),
        "trip": None
        if trip is None
        else {
            "spend": plain(trip.spend.amount),
            "cap": plain(trip.cap.amount),
            "currency": trip.cap.currency,
            "period": trip.period,
        },
    }


def thread_of(incident: Incident) -> str:
    """A name no other incident has, in other installations neither: its number and the microsecond it opened."""
    return f"tokenfuse-{incident.id}-{int(incident.opened_at.timestamp() * 1_000_000)}"


def _money(value: Money | None) -> str | None:
    return None if value is None else f"{plain(value.amount)} {value.currency}"


def message_of(key: str, payload: Mapping[str, Any], language: Language = "en") -> Message:
    """The message of a snapshot in words of a language."""
    which = LANGUAGES.index(language)

    def word(name: str) -> str:
        return _WORDS[name][which]

    severity = word("recovered_word") if payload["is_over"] else word(payload["severity"])
    shadow = f" ({word('shadow')})" if payload["shadow"] else ""
    return Message(
        key=key,
        thread=payload["thread"],
        incident=payload["incident"],
        seq=payload["seq"],
        event=payload["event"],
        severity=payload["severity"],
        is_over=payload["is_over"],
        scope=payload["scope"],
        title=f"[{severity}] {payload['scope']}: {payload['cause']} {payload['phase']}"[:240],
        summary=f"{word(payload['event'])}: {payload['reason']}{shadow}",
        facts=tuple((word(label), value) for label, value in _facts(payload, which) if value),
        started_at=payload["opened_at"],
        at=payload["at"],
        can_approve=payload["phase"] in ("degraded", "open") and not payload["is_over"],
    )


def _facts(payload: Mapping[str, Any], which: int) -> list[tuple[str, str]]:
    trip, unknown = payload["trip"], _WORDS["unknown"][which]
    money = [("trip", "" if trip is None else _WORDS["trip_value"][which].format(**trip))]
    risk = payload["at_risk"]
    money.append(("at_risk", unknown if risk is None else f"{risk} ({_WORDS['estimate'][which]})"))
    if payload["is_over"] and trip is not None:
        money.append(("overshoot", payload["overshoot"] or unknown))
    actor = "" if payload["actor"] == SYSTEM_ACTOR else payload["actor"]
    return [
        ("scope", payload["scope"]),
        ("phase", payload["phase"]),
        *money,
        ("owner", payload["owner"]),
        ("assignee", payload["assignee"]),
        ("actor", actor),
        ("outcome", payload["outcome"]),
        ("since", payload["opened_at"]),
        ("at", payload["at"]),
        ("story", f"tokenfuse incidents show {payload['incident']}"),
    ]
