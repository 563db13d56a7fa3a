"""Jira as published: it refuses what the API refuses, and its search may lag behind what it stored."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from vendor_server import Answered, Asked

TOKEN = "jira-t0ken-5ecret"
EMAIL = "bot@acme.example"


@dataclass
class Jira:
    is_cloud: bool = True
    lags: bool = False
    statuses: tuple[tuple[str, str], ...] = (("To Do", "new"), ("In Progress", "indeterminate"), ("Done", "done"))
    issues: dict[str, dict[str, Any]] = field(default_factory=dict)

    def answer(self, asked: Asked) -> Answered:
        pair = base64.b64encode(f"{EMAIL}:{TOKEN}".encode()).decode()
        if asked.headers.get("authorization") != (f"Basic {pair}" if self.is_cloud else f"Bearer {TOKEN}"):
            return 401, {}
        url = urlsplit(asked.path)
        base = "/rest/api/3" if self.is_cloud else "/rest/api/2"
        if not url.path.startswith(base + "/"):
            return 404, {}
        path = url.path.removeprefix(base)
        if (asked.method, path) == ("POST", "/search/jql" if self.is_cloud else "/search"):
            return self._search(asked.json)
        if (asked.method, path) == ("POST", "/issue"):
            return self._create(asked.json)
        found = re.fullmatch(r"/issue/([A-Z]+-\d+)(/.*)?", path)
        if found is None or found[1] not in self.issues:
            return 404, {"errorMessages": ["Issue does not exist"]}
        return self._one(asked, found[1], found[2] or "", parse_qs(url.query))

    def _search(self, body: Any) -> Answered:
        label = re.fullmatch(r'project = "OPS" AND labels = "([a-z0-9-]+)" ORDER BY created ASC', body["jql"])
        if label is None:
            return 400, {"errorMessages": ["bad JQL"]}
        keys = [] if self.lags else [k for k, i in self.issues.items() if label[1] in i["labels"]]
        return 200, {"issues": [{"key": key, "fields": {}} for key in keys], "isLast": True}

    def _create(self, body: Any) -> Answered:
        fields = body["fields"]
        errors = {}
        if fields.get("project") != {"key": "OPS"}:
            errors["project"] = "valid project is required"
        if fields.get("issuetype") != {"name": "Task"}:
            errors["issuetype"] = "valid issue type is required"
        if not fields.get("summary") or len(fields["summary"]) > 255 or "\n" in fields["summary"]:
            errors["summary"] = "bad summary"
        if any(" " in label or len(label) > 255 for label in fields.get("labels", [])):
            errors["labels"] = "no blanks"
        if not self._is_text(fields["description"]):
            errors["description"] = "Operation value must be an Atlassian Document"
        if errors:
            return 400, {"errorMessages": [], "errors": errors}
        key = f"OPS-{len(self.issues) + 1}"
        properties = {p["key"]: p["value"] for p in body.get("properties", [])}
        self.issues[key] = {**fields, "properties": properties, "comments": [], "status": 0, "assignee": None}
        return 201, {"id": "10000", "key": key, "self": "x"}

    def _is_text(self, text: Any) -> bool:
        return is_adf(text) if self.is_cloud else isinstance(text, str) and 0 < len(text) <= 32_767

    def _one(self, asked: Asked, key: str, rest: str, query: dict[str, list[str]]) -> Answered:
        issue = self.issues[key]
        name, category = self.statuses[issue["status"]]
        if (asked.method, rest) == ("GET", ""):
            status = {"name": name, "statusCategory": {"key": category}}
            return 200, {"key": key, "fields": {"status": status, "assignee": issue["assignee"]}}
        if (asked.method, rest) == ("GET", "/properties/tokenfuse.incident"):
            value = issue["properties"].get("tokenfuse.incident")
            return (404, {}) if value is None else (200, {"key": "tokenfuse.incident", "value": value})
        if (asked.method, rest) == ("GET", "/comment"):
            assert query["orderBy"] == ["-created"]
            return 200, {"comments": [{"body": body} for body in reversed(issue["comments"])]}
        if (asked.method, rest) == ("POST", "/comment"):
            if not self._is_text(asked.json["body"]):
                return 400, {"errors": {"comment": "not a document"}}
            issue["comments"].append(asked.json["body"])
            return 201, {"id": "1"}
        if (asked.method, rest) == ("GET", "/transitions"):
            offered = enumerate(self.statuses)
            return 200, {
                "transitions": [{"id": str(n), "name": s, "to": {"statusCategory": {"key": c}}} for n, (s, c) in offered]
            }
        if (asked.method, rest) == ("POST", "/transitions"):
            issue["status"] = int(asked.json["transition"]["id"])
            return 204, None
        return 404, {}


def is_adf(node: Any) -> bool:
    """Whether a document is valid: version 1, known nodes, each child where it may stand, no empty text."""
    inside = {
        "doc": {"paragraph", "bulletList"}, "paragraph": {"text"}, "bulletList": {"listItem"}, "listItem": {"paragraph"},
    }  # fmt: skip

    def valid(node: Any, allowed: set[str]) -> bool:
        if not isinstance(node, dict) or node.get("type") not in allowed:
            return False
        if node["type"] == "text":
            marks = node.get("marks", [])
            return set(node) <= {"type", "text", "marks"} and bool(node["text"]) and all(m == {"type": "strong"} for m in marks)
        children = node.get("content")
        return isinstance(children, list) and bool(children) and all(valid(c, inside[node["type"]]) for c in children)

    return isinstance(node, dict) and node.get("version") == 1 and valid(node, {"doc"})
