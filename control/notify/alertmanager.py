"""Alertmanager, told over its API v2: an alert per incident that ends when the incident does.

Alerts are the same when their labels are, so sending again changes nothing. ``severity`` is a label people route by: whenever it
rises, the alert of the lower one is ended. An open alert is given a week before Alertmanager ends it by itself.
Published: prometheus.io/docs/alerting/latest/alerts_api.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from control.notify.http_call import Caller, attempt, judged
from core.incident import SEVERITIES
from core.message import Language, Message, message_of
from core.policy import rfc3339
from core.ports import Delivery, Effect

ALERT_NAME = "TokenfuseIncident"
KEPT = timedelta(days=7)
WHAT = "Alertmanager"


@dataclass(frozen=True, slots=True)
class AlertmanagerEffector:
    """``token`` reads a bearer token, where a proxy in front wants one."""

    url: str
    token: Callable[[], str] | None
    language: Language
    caller: Caller

    def deliver(self, effect: Effect) -> Delivery:
        alerts = alerts_of(message_of(effect.key, effect.payload, self.language))
        return attempt(lambda: self._send(alerts), WHAT)

    def _send(self, alerts: list[dict[str, Any]]) -> Delivery:
        headers = {"authorization": f"Bearer {self.token()}"} if self.token is not None else {}
        return judged(self.caller.json("POST", f"{self.url.rstrip('/')}/api/v2/alerts", headers, alerts), WHAT)


def alerts_of(message: Message) -> list[dict[str, Any]]:
    """The incident's alert, and those of other severities as ended."""
    lasts = rfc3339(datetime.fromisoformat(message.at) + KEPT)
    return [
        {
            "labels": {
                "alertname": ALERT_NAME,
                "incident": str(message.incident),
                "scope": message.scope,
                "severity": severity,
            },
            "annotations": {"summary": message.title, "description": message.text},
            "startsAt": message.started_at,
            "endsAt": lasts if severity == message.severity and not message.is_over else message.at,
        }
        for severity in SEVERITIES
    ]
