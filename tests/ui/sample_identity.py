"""Answers of the API about tenants and identity rules; every body goes through the API's own schema."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from pages_world import NOW, FakeClient
from pydantic import BaseModel
from sample_answers import Kind

from api.schemas.identity import PreviewOut, RulesPublished, RulesVersionOut, RuleVersionsOut, TenantsOut
from ui.client import ApiProblem

RULES: dict[str, Any] = {
    "start": "said",
    "default": {"org": "unassigned"},
    "rules": [
        {
            "name": "rag keys",
            "when": [
                {"field": "key_alias", "op": "regex", "value": "rag-([a-z]+)"},
                {"field": "tag.env", "op": "exact", "value": "prod"},
            ],
            "set": {"project": "rag", "team": "$1", "service_tier": "P2"},
            "then": "continue",
        },
        {
            "name": "星辰",
            "when": [{"field": "org", "op": "prefix", "value": "xc-"}],
            "set": {"org": "星辰科技", "user": ""},
            "then": "stop",
        },
    ],
}
TIER = "P1"


def _json(schema: type[BaseModel], body: Mapping[str, Any]) -> dict[str, Any]:
    checked: dict[str, Any] = schema.model_validate(body).model_dump(mode="json")
    return checked


def version(number: int, **changes: Any) -> dict[str, Any]:
    body = {
        "version": number, "valid_from": datetime(2026, 11, 17, 9, tzinfo=UTC),
        "created_at": datetime(2026, 11, 17, 8, 59, tzinfo=UTC),
        "author": "ann", "reason": f"reason {number}", "digest": "d", "in_force": True, "rules": RULES, **changes,
    }  # fmt: skip
    return _json(RulesVersionOut, body)


def no_version() -> dict[str, Any]:
    none = {"valid_from": None, "created_at": None, "author": "", "reason": "", "digest": ""}
    return version(0, **none, rules={"rules": [], "default": {}})


def tenants(kind: Kind, keys: list[str]) -> dict[str, Any]:
    paths = [("星辰科技", "搜索推荐", "rag"), ("acme", "search", ""), ("unassigned", "", "")]
    rows = [
        {
            **{key: {"org": org, "team": team, "project": project}.get(key, "k-17") for key in keys},
            "name": "search-prod" if "key_id" in keys else "", "requests": 410 * (n + 1),
            "last_seen": NOW.replace(minute=0, second=0),
            "costs": {} if kind == "partial" else {"USD": Decimal("12.5") / (n + 1)},
            "cost_reason": "no quarter hour with its work is closed and priced" if kind == "partial" else "",
        }
        for n, (org, team, project) in enumerate(paths)
    ]  # fmt: skip
    rows = [] if kind == "empty" else rows
    ends = {"window_start": datetime(2026, 10, 19, tzinfo=UTC), "window_end": datetime(2026, 11, 19, tzinfo=UTC)}
    return _json(TenantsOut, {"rows": rows, "total_rows": len(rows), "basis": "allocation", **ends})


def work(requests: int, tokens: int, cost: str) -> dict[str, Any]:
    return {
        "requests": requests,
        "tokens": {"input": tokens, "input_cached": 0, "output": 7},
        "costs": {"USD": Decimal(cost)} if cost else {},
    }


def preview(*, priced: bool = True) -> dict[str, Any]:
    path = {"org": "acme", "team": "search", "project": "", "user": "", "service_tier": TIER}
    nobody = {**path, "org": "", "team": ""}
    money = (lambda text: text) if priced else (lambda _text: "")
    body = {
        "window_start": datetime(2026, 11, 11, tzinfo=UTC), "window_end": datetime(2026, 11, 18, tzinfo=UTC),
        "basis": "allocation",
        "moves": [
            {"source": path, "target": {**path, "project": "rag", "service_tier": "P2"}, "work": work(3, 300, money("1.5"))},
            {"source": nobody, "target": {**nobody, "org": "unassigned"}, "work": work(2, 20, money("0.25"))},
        ],
        "moved": work(5, 320, money("1.75")), "kept": work(10, 1000, money("4")), "total": work(15, 1320, money("5.75")),
        "unmatched": work(12, 1020, money("4.25")), "by_rule": {"rag keys": 3, "星辰": 0},
        "cost_reason": "" if priced else "no quarter hour of it is closed and priced", "uncounted_costs": {},
    }  # fmt: skip
    return _json(PreviewOut, body)


class IdentityClient(FakeClient):
    """Answers about tenants and rules, remembers what was previewed and published; ``refuses`` answers a publication."""

    def __init__(self, kind: Kind = "data", *, refuses: ApiProblem | None = None) -> None:
        super().__init__(kind)
        self.kind, self.refuses = kind, refuses
        self.published: list[tuple[dict[str, Any], int]] = []
        self.previewed: list[dict[str, Any]] = []

    def tenants(self, params: Mapping[str, str]) -> dict[str, Any]:
        self.asked.append(("tenants", dict(params)))
        return tenants(self.kind, params["by"].split(","))

    def identity_rules(self, params: Mapping[str, str]) -> dict[str, Any]:
        return no_version() if self.kind == "empty" else version(2)

    def identity_versions(self, params: Mapping[str, str]) -> dict[str, Any]:
        versions = [] if self.kind == "empty" else [version(2), version(1, in_force=False)]
        return _json(RuleVersionsOut, {"versions": versions, "in_force": 2 if versions else 0})

    def identity_preview(self, body: Mapping[str, Any]) -> dict[str, Any]:
        self.previewed.append(dict(body))
        return preview(priced=self.kind != "partial")

    def publish_rules(self, body: Mapping[str, Any], version_held: int) -> dict[str, Any]:
        if self.refuses:
            raise self.refuses
        self.published.append((dict(body), version_held))
        return _json(RulesPublished, {**version(version_held + 1, rules=body["rules"], reason=body["reason"]), "changed": True})
