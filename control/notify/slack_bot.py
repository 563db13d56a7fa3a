"""A Slack bot: one message per incident, updated in place, with every change as a reply in its thread.

Each message carries metadata with the incident's name and the effect's key. Before one is sent the channel's history (or the
thread's replies) is asked for it, so a crash between sending and noting sends nothing twice.
Published: docs.slack.dev/reference/methods (chat.postMessage, chat.update, conversations.history, conversations.replies; scopes
chat:write and channels:history or groups:history), docs.slack.dev/messaging/message-metadata.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from control.notify.http_call import Caller, attempt, taken
from control.notify.slack_blocks import blocks, fallback
from control.notify.ticket_store import TicketStore, made
from core.message import Language, Message, message_of
from core.ports import Delivery, Effect
from models.channel_repo import Ticket

EVENT = "tokenfuse_incident"
WHAT = "Slack"
RETRY_ERRORS = frozenset({"ratelimited", "internal_error", "fatal_error", "service_unavailable", "request_timeout"})
MAX_PAGES = 10


class _NotOk(Exception):
    """An answer with ``ok`` false; its word says why."""


@dataclass(frozen=True, slots=True)
class SlackBotEffector:
    """``channel`` is the channel's id; ``token`` reads the bot token (xoxb-…)."""

    channel: str
    token: Callable[[], str]
    language: Language
    tickets: TicketStore
    caller: Caller
    url: str = "https://slack.com"

    def deliver(self, effect: Effect) -> Delivery:
        message = message_of(effect.key, effect.payload, self.language)
        return attempt(lambda: self._judged(message), WHAT)

    def _judged(self, message: Message) -> Delivery:
        try:
            return self._deliver(message)
        except _NotOk as error:
            word = str(error)
            return Delivery("retry" if word in RETRY_ERRORS else "failed", f"{WHAT} says {word}")

    def _deliver(self, message: Message) -> Delivery:
        ticket, _ = self.tickets.begin(message.incident)
        root = ticket.external_id or self._find_root(message)
        if not root:
            root = self._post(message)
            self._keep(ticket, root)
            return Delivery("delivered", root)
        if not ticket.external_id:
            self._keep(ticket, root)
        if message.is_first:
            return Delivery("delivered", root)
        return self._follow(message, root)

    def _keep(self, ticket: Ticket, ts: str) -> None:
        self.tickets.keep(made(ticket, ts, ""))

    def _find_root(self, message: Message) -> str:
        """The timestamp of the incident's message, '' when there is none."""
        oldest = f"{datetime.fromisoformat(message.started_at).timestamp() - 60:.6f}"
        asked = {"channel": self.channel, "oldest": oldest, "limit": "100", "include_all_metadata": "true"}
        for one in self._pages("conversations.history", asked):
            if _payload(one).get("thread") == message.thread:
                return str(one["ts"])
        return ""

    def _follow(self, message: Message, root: str) -> Delivery:
        """Reply in the thread unless that was done, and bring the message up to date unless a later change did."""
        asked = {"channel": self.channel, "ts": root, "limit": "100", "include_all_metadata": "true"}
        thread = list(self._pages("conversations.replies", asked))
        if not any(_payload(one).get("key") == message.key for one in thread):
            self._post(message, root)
        shown = next((_payload(one).get("seq", 0) for one in thread if one["ts"] == root), 0)
        if message.seq > shown:
            self._call("chat.update", {"ts": root, **self._body(message)})
        return Delivery("delivered", root)

    def _post(self, message: Message, root: str = "") -> str:
        thread = {"thread_ts": root} if root else {}
        return str(self._call("chat.postMessage", {**thread, **self._body(message)})["ts"])

    def _body(self, message: Message) -> dict[str, Any]:
        payload = {"thread": message.thread, "key": message.key, "seq": message.seq}
        return {
            "channel": self.channel,
            "text": fallback(message),
            "blocks": blocks(message),
            "metadata": {"event_type": EVENT, "event_payload": payload},
            "unfurl_links": False,
        }

    def _pages(self, method: str, asked: dict[str, str]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor = ""
        for _ in range(MAX_PAGES):
            page = self._call(f"{method}?{urlencode({**asked, **({'cursor': cursor} if cursor else {})})}")
            found += page.get("messages", [])
            cursor = (page.get("response_metadata") or {}).get("next_cursor", "")
            if not cursor:
                break
        return found

    def _call(self, method: str, body: dict[str, Any] | None = None) -> Any:
        headers = {"authorization": f"Bearer {self.token()}"}
        verb = "GET" if body is None else "POST"
        answer = taken(self.caller.json(verb, f"{self.url}/api/{method}", headers, body)).json()
        if not answer.get("ok"):
            raise _NotOk(str(answer.get("error", "nothing"))[:60])
        return answer


def _payload(message: dict[str, Any]) -> dict[str, Any]:
    metadata = message.get("metadata") or {}
    return metadata.get("event_payload") or {} if metadata.get("event_type") == EVENT else {}
