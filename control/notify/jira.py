"""Jira, Cloud (REST v3) and Data Center (REST v2): one issue per incident, a comment per change, a transition when it is over.

Before an issue is made Jira is asked for it: by the label that names the incident (JQL), checked against the entity property set
when it was made, for a property is searchable only where an app declares it. Before a comment is sent the newest comments are
read for its reference. A search may lag behind what Jira stored, so an issue begun and not found is made only after a while.
Published API: developer.atlassian.com/cloud/jira/platform/rest/v3, docs.atlassian.com/software/jira/docs/api/REST.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import quote

from control.notify.http_call import Answer, Caller, attempt, judged, taken
from control.notify.jira_text import adf, reference, wiki
from control.notify.ticket_store import TicketStore, made
from core.message import Language, Message, message_of
from core.ports import Delivery, Effect
from models.channel_repo import Ticket

PROPERTY = "tokenfuse.incident"
MAX_SUMMARY = 250
WHAT = "Jira"


@dataclass(frozen=True, slots=True)
class JiraSettings:
    """``token`` reads an API token (Cloud, with ``email``) or a personal access token (Data Center)."""

    url: str
    project: str
    token: Callable[[], str]
    flavour: Literal["cloud", "datacenter"] = "cloud"
    email: str = ""
    issue_type: str = "Task"
    done_transition: str = ""
    language: Language = "en"


class JiraEffector:
    """Delivers moments of incidents to one project."""

    def __init__(self, settings: JiraSettings, tickets: TicketStore, caller: Caller) -> None:
        self._settings, self._tickets, self._caller = settings, tickets, caller
        self._is_cloud = settings.flavour == "cloud"
        self._base = f"{settings.url.rstrip('/')}/rest/api/{'3' if self._is_cloud else '2'}"

    def deliver(self, effect: Effect) -> Delivery:
        message = message_of(effect.key, effect.payload, self._settings.language)
        return attempt(lambda: self._deliver(message), WHAT)

    def read(self, ticket: Ticket) -> Ticket:
        """The ticket with its status and assignee as Jira has them now. Raises NotTaken, httpx errors."""
        fields = taken(self._call("GET", f"/issue/{ticket.external_id}?fields=status,assignee")).json()["fields"]
        assignee = fields.get("assignee") or {}
        return replace(ticket, status=fields["status"]["name"], assignee=str(assignee.get("displayName") or ""))

    def _deliver(self, message: Message) -> Delivery:
        ticket, is_new = self._tickets.begin(message.incident)
        if not ticket.external_id:
            key = self._find(message.thread)
            if key is None and not is_new and (wait := self._tickets.wait_s(ticket)):
                return Delivery("retry", "an issue was begun and is not found yet", wait)
            if key is None:
                return self._create(message, ticket)
            ticket = self._keep(ticket, key)
        if not message.is_first:
            refused = self._comment(message, ticket.external_id)
            if refused is not None:
                return refused
        return self._transition(ticket.external_id) if message.is_over else Delivery("delivered", ticket.external_id)

    def _find(self, thread: str) -> str | None:
        """The key of the incident's issue, or None."""
        jql = f'project = "{self._settings.project}" AND labels = "{thread}" ORDER BY created ASC'
        asked = {"jql": jql, "fields": ["labels"], "maxResults": 10}
        found = taken(self._call("POST", "/search/jql" if self._is_cloud else "/search", asked)).json()
        for issue in found.get("issues", []):
            answer = self._call("GET", f"/issue/{issue['key']}/properties/{PROPERTY}")
            if answer.status != 404 and taken(answer).json()["value"] == {"thread": thread}:
                return str(issue["key"])
        return None

    def _create(self, message: Message, ticket: Ticket) -> Delivery:
        fields = {
            "project": {"key": self._settings.project},
            "issuetype": {"name": self._settings.issue_type},
            "summary": message.title[:MAX_SUMMARY].replace("\n", " "),
            "description": self._body(message),
            "labels": ["tokenfuse", message.thread],
        }
        property_of = {"key": PROPERTY, "value": {"thread": message.thread}}
        answer = self._call("POST", "/issue", {"fields": fields, "properties": [property_of]})
        if not answer.ok:
            return judged(answer, WHAT, _faults(answer))
        key = str(answer.json()["key"])
        self._keep(ticket, key)
        return self._transition(key) if message.is_over else Delivery("delivered", key)

    def _keep(self, ticket: Ticket, key: str) -> Ticket:
        ticket = made(ticket, key, f"{self._settings.url.rstrip('/')}/browse/{key}")
        self._tickets.keep(ticket)
        return ticket

    def _comment(self, message: Message, key: str) -> Delivery | None:
        """None: it stands there."""
        listed = taken(self._call("GET", f"/issue/{key}/comment?orderBy=-created&maxResults=50")).json()
        sent = json.dumps([one.get("body") for one in listed.get("comments", [])], ensure_ascii=False)
        if f'{reference(message)}"' in sent or f"{reference(message)}\\n" in sent:
            return None
        answer = self._call("POST", f"/issue/{key}/comment", {"body": self._body(message)})
        return None if answer.ok else judged(answer, WHAT, _faults(answer))

    def _transition(self, key: str) -> Delivery:
        status = taken(self._call("GET", f"/issue/{key}?fields=status")).json()["fields"]["status"]
        if status["statusCategory"]["key"] == "done":
            return Delivery("delivered", f"{key} is {status['name']}")
        offered = taken(self._call("GET", f"/issue/{key}/transitions")).json()["transitions"]
        chosen = next((one for one in offered if self._ends(one)), None)
        if chosen is None:
            return Delivery("delivered", f"{key}: no transition from {status['name']} leads to done")
        answer = self._call("POST", f"/issue/{key}/transitions", {"transition": {"id": chosen["id"]}})
        if answer.status == 400:
            return Delivery("delivered", f"{key}: Jira refused the transition {chosen['name']}")
        return judged(answer, WHAT) if not answer.ok else Delivery("delivered", f"{key}: {chosen['name']}")

    def _ends(self, transition: Mapping[str, Any]) -> bool:
        wanted = self._settings.done_transition
        if wanted:
            return bool(transition["name"] == wanted)
        return bool(transition["to"]["statusCategory"]["key"] == "done")

    def _body(self, message: Message) -> Any:
        return adf(message) if self._is_cloud else wiki(message)

    def _call(self, method: str, path: str, body: Any = None) -> Answer:
        token = self._settings.token()
        if self._is_cloud:
            pair = base64.b64encode(f"{self._settings.email}:{token}".encode()).decode()
            authorization = f"Basic {pair}"
        else:
            authorization = f"Bearer {token}"
        headers = {"authorization": authorization, "accept": "application/json"}
        return self._caller.json(method, self._base + quote(path, safe="/?=&,-"), headers, body)


def _faults(answer: Answer) -> str:
    """The names of the fields Jira does not take, and nothing it says besides."""
    found = answer.json()
    named = found.get("errors") if isinstance(found, dict) else None
    return f"fields: {', '.join(sorted(named))[:200]}" if isinstance(named, dict) and named else ""
