"""Identity rules over HTTP: read with an ETag, tried on the archive, published with a reason, then in force at the boundary."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pytest
from api_client import NOW, Api, Clock, TokenMaker
from api_world import T0, settle
from sqlalchemy import Engine

from core.identity_state import Alias
from core.ports import EventLog, LogBatch
from core.usage_codec import decode_usage
from eventlog.archive import archive_segments
from eventlog.manifest import epochs, segments
from ingest.usage.rows import prepare
from models.identity_repo import put_aliases

pytestmark = pytest.mark.db
RULES: dict[str, Any] = {
    "start": "said",
    "default": {"org": "unassigned"},
    "rules": [
        {"name": "rag", "when": [{"field": "tag.app", "op": "regex", "value": "(.+)"}], "set": {"project": "$1"}},
        {"name": "never", "when": [{"field": "org", "op": "exact", "value": "nobody"}], "set": {"org": "x"}},
    ],
}
DAY = {"from": "2026-11-30T00:00:00Z", "to": "2026-12-01T00:00:00Z"}


def put(api: Api, token: str, match: str | None, **body: Any) -> Any:
    headers = {} if match is None else {"If-Match": match}
    return api.call("PUT", "/v1/identity/rules", token, headers=headers, json={"rules": RULES, "reason": "why", **body})


def item(number: int, team: str, **changes: Any) -> dict[str, Any]:
    at = (T0 + timedelta(minutes=1, seconds=number)).isoformat()
    return {
        "schema": "usage/1", "request_id": f"r{number}", "started_at": at, "finished_at": at,
        "deployment": {"cluster": "lab", "namespace": "prod", "model_id": "tiny"},
        "tenant": {"org": "acme", "team": team, "project": "", "user": "", "key_id": ""},
        "tokens": {"input_uncached": 1000, "output": 100}, "status": "ok", "service_tier": "P1", **changes,
    }  # fmt: skip


def archive(data_dir: Path, log: EventLog, *items: dict[str, Any]) -> None:
    rows = [prepare(decode_usage(one)) for one in items]
    log.append("usage", LogBatch([row.line for row in rows], [row.record for row in rows]))
    log.close()
    for epoch in epochs(data_dir / "log", "usage"):
        archive_segments(data_dir, "usage", epoch, [one.segment for one in segments(data_dir / "log", "usage", epoch)])


def test_before_the_first_publication_sources_are_taken_at_their_word(api: Api, token: TokenMaker) -> None:
    answer = api.get("/v1/identity/rules", token("read"))
    assert answer.headers["etag"] == '"0"'
    body = answer.json()
    assert (body["version"], body["in_force"], body["rules"]["rules"], body["valid_from"]) == (0, True, [], None)


def test_a_set_is_published_once_and_never_over_somebody_elses(api: Api, token: TokenMaker, clock: Clock) -> None:
    operate, read = token("operate", name="ann"), token("read")
    assert put(api, operate, None).status_code == 428
    made = put(api, operate, '"0"')
    assert made.status_code == 200
    assert made.headers["etag"] == '"1"'
    body = made.json()
    assert (body["version"], body["author"], body["reason"], body["changed"], body["in_force"]) == (1, "ann", "why", True, False)
    assert body["valid_from"] == "2026-11-30T12:08:00Z"
    lost = put(api, operate, '"0"', reason="mine")
    assert lost.status_code == 412
    assert lost.json()["error"]["code"] == "precondition_failed"
    assert put(api, operate, '"1"').json()["changed"] is False
    clock.pass_time(timedelta(minutes=2))
    found = api.get("/v1/identity/rules", read).json()
    assert found["in_force"] is True
    again = {"rules": found["rules"], "reason": "the same, as it was read"}
    assert api.call("PUT", "/v1/identity/rules", operate, headers={"If-Match": '"1"'}, json=again).json()["changed"] is False
    history = api.get("/v1/identity/rules/versions", read).json()
    assert (history["in_force"], [v["version"] for v in history["versions"]]) == (1, [1])
    assert "identity.publish" in [one["action"] for one in api.get("/v1/audit", read).json()["records"]]


@pytest.mark.parametrize("restate", [False, True])
def test_the_past_is_not_rewritten(api: Api, token: TokenMaker, log: EventLog, restate: bool) -> None:
    assert api.post("/v1/usage", token("ingest"), [item(1, "search")]).json()["accepted"] == 1
    log.flush()  # type: ignore[attr-defined]
    answer = put(api, token("operate"), '"0"', valid_from="2026-11-30T11:00:00Z", restate=restate)
    assert answer.status_code == 422
    assert "restate" in answer.json()["error"]["message"] or "history" in answer.json()["error"]["message"]


def one_rule(*when: dict[str, str]) -> dict[str, Any]:
    return {"rules": {"rules": [{"name": "a", "when": list(when), "set": {"org": "y"}}]}}


@pytest.mark.parametrize(("change", "field"), [
    ({"reason": ""}, "reason"),
    (one_rule({"field": "colour", "value": "x"}), "rules[0].when[0].field"),
    (one_rule({"field": "org", "op": "regex", "value": "(a+)+"}), "rules[0].when[0].value"),
    (one_rule(), "rules.rules.0.when"),
    ({"rules": {"rule": []}}, "rules.rule"),
    ({"colour": 1}, "colour"),
])  # fmt: skip
def test_a_wrong_set_is_refused_by_place(api: Api, token: TokenMaker, change: dict[str, Any], field: str) -> None:
    answer = put(api, token("operate"), '"0"', **change)
    assert answer.status_code == 400
    assert (answer.json()["error"]["field"], answer.json()["error"]["where"]) == (field, "body")


def test_the_boundary_maps_by_the_published_set_and_keeps_what_the_source_said(
    api: Api, token: TokenMaker, clock: Clock, log: EventLog
) -> None:
    operate, ingest = token("operate"), token("ingest")
    assert put(api, operate, '"0"').status_code == 200
    clock.pass_time(timedelta(minutes=5))
    at = {name: clock.at.isoformat() for name in ("started_at", "finished_at")}
    tagged = {"raw": {"identity": {"tags": ["app:rag"]}}}
    sent = [
        item(1, "search", **at, **tagged),
        item(2, "search", **at),
        item(3, "ads", **tagged),
        {**item(4, "", **at), "tenant": {}},
    ]
    assert api.post("/v1/usage", ingest, sent).json()["accepted"] == 4
    log.flush()  # type: ignore[attr-defined]
    found = [orjson.loads(line.record or b"{}") for line in log.read("usage")]
    assert [(one["tenant"]["org"], one["tenant"]["project"]) for one in found] == [
        ("acme", "rag"), ("acme", ""), ("acme", ""), ("unassigned", ""),
    ]  # fmt: skip
    assert found[0]["raw"]["identity"]["said"]["project"] == ""
    assert found[0]["raw"]["identity"]["rules"] == "1"


def test_rules_do_not_lead_a_tenants_token_out_of_its_tenant(api: Api, token: TokenMaker, clock: Clock) -> None:
    away = {"rules": [{"name": "away", "when": [{"field": "tag", "op": "exact", "value": "x"}], "set": {"org": "other"}}]}
    assert put(api, token("operate"), '"0"', rules=away).status_code == 200
    clock.pass_time(timedelta(minutes=5))
    at = {name: clock.at.isoformat() for name in ("started_at", "finished_at")}
    bound = token("ingest", tenant="acme/search")
    sent = [
        item(1, "search", **at, raw={"identity": {"tags": ["x"]}}),
        item(2, "search", **at, raw={"identity": {"said": {"org": "other"}}}),
        item(3, "search", **at),
    ]
    verdicts = api.post("/v1/usage", bound, sent).json()["verdicts"]
    assert [one["verdict"] for one in verdicts] == ["quarantined", "quarantined", "accepted"]
    assert [one.get("field") for one in verdicts] == ["tenant", "raw.identity.said", None]


def test_a_preview_moves_requests_tokens_and_cost_in_parts_that_add_up(
    db: Engine, api: Api, token: TokenMaker, log: EventLog, settings: Any
) -> None:
    settle(db, NOW)
    tagged = {"raw": {"identity": {"tags": ["app:rag"]}}}
    wasted = {"status": "aborted", "tokens": {"input_uncached": 500, "output": 7}}
    archive(
        settings.data_dir, log, item(1, "search", **tagged), item(2, "search"), item(3, "ads", **wasted), item(4, "new", **tagged)
    )
    read = token("read")
    body = api.post("/v1/identity/preview", read, {"rules": RULES, **DAY}).json()
    assert [(m["source"]["team"], m["target"]["project"], m["work"]["requests"]) for m in body["moves"]] == [
        ("search", "rag", 1), ("new", "rag", 1),
    ]  # fmt: skip
    assert (body["total"]["requests"], body["moved"]["requests"], body["kept"]["requests"]) == (4, 2, 2)
    assert body["unmatched"]["requests"] == 2
    assert body["by_rule"] == {"rag": 2, "never": 0}
    assert body["moved"]["tokens"] == {"input": 2000, "input_cached": 0, "output": 200}
    lines = api.get("/v1/ledger", read, by="team,kind", **DAY).json()["rows"]
    charged = sum(Decimal(row["allocated"]) for row in lines if row["kind"] in ("served", "wasted"))
    cost = {name: Decimal(body[name]["costs"].get("USD", "0")) for name in ("total", "moved", "kept")}
    assert cost["total"] == charged > 0
    assert cost["moved"] + cost["kept"] == cost["total"]
    search = sum(Decimal(row["allocated"]) for row in lines if (row["team"], row["kind"]) == ("search", "served"))
    assert abs(cost["moved"] * 2 - search) <= Decimal("0.000000000002")
    assert (body["cost_reason"], body["uncounted_costs"]) == ("", {})


def test_without_a_closed_ledger_the_preview_says_why_there_is_no_cost(
    api: Api, token: TokenMaker, log: EventLog, settings: Any
) -> None:
    archive(settings.data_dir, log, item(1, "search"))
    body = api.post("/v1/identity/preview", token("read"), {"rules": RULES, **DAY}).json()
    assert (body["total"]["requests"], body["total"]["costs"]) == (1, {})
    assert "closed and priced" in body["cost_reason"]


@pytest.mark.parametrize(("span", "field"), [
    ({"from": "2026-10-01T00:00:00Z", "to": "2026-11-30T00:00:00Z"}, "from"),
    ({"from": "2026-11-30T00:00:00Z", "to": "2026-11-29T00:00:00Z"}, "to"),
])  # fmt: skip
def test_a_preview_has_a_window_that_can_be(api: Api, token: TokenMaker, span: dict[str, str], field: str) -> None:
    answer = api.post("/v1/identity/preview", token("read"), {"rules": RULES, **span})
    assert (answer.status_code, answer.json()["error"]["field"]) == (400, field)


def test_one_record_is_explained(api: Api, token: TokenMaker) -> None:
    record = item(1, "search", raw={"identity": {"tags": ["app:rag"]}})
    body = api.post("/v1/identity/test", token("read"), {"record": record, "rules": RULES}).json()
    assert body["result"] == {"org": "acme", "team": "search", "project": "rag", "user": "", "service_tier": "P1"}
    assert [(s["rule"], s["outcome"]) for s in body["steps"]] == [("rag", "applied"), ("never", "not reached")]
    assert api.post("/v1/identity/test", token("read"), {"record": {}}).json()["matched"] == []


def test_tenants_are_listed_with_last_use_cost_and_names(db: Engine, api: Api, token: TokenMaker) -> None:
    settle(db, NOW)
    with db.begin() as connection:
        put_aliases(connection, "litellm", [Alias("key", "", "never shown for no key"), Alias("user", "ann", "Ann")], NOW)
    read = token("read")
    body = api.get("/v1/identity/tenants", read, by="org,team", **DAY).json()
    assert [(r["org"], r["team"], r["requests"], r["last_seen"]) for r in body["rows"]] == [
        ("acme", "ads", 1, "2026-11-30T11:00:00Z"), ("acme", "search", 1, "2026-11-30T11:00:00Z"),
    ]  # fmt: skip
    lines = api.get("/v1/ledger", read, by="kind", **DAY).json()["rows"]
    charged = sum(Decimal(row["allocated"]) for row in lines if row["kind"] in ("served", "wasted"))
    assert sum(Decimal(r["costs"]["USD"]) for r in body["rows"]) == charged
    mine = api.get("/v1/identity/tenants", token("read", tenant="acme/ads"), by="team", **DAY).json()["rows"]
    assert [row["team"] for row in mine] == ["ads"]
    assert api.get("/v1/identity/tenants", read, by="colour").status_code == 400


def test_names_are_listed_with_their_history(db: Engine, api: Api, token: TokenMaker) -> None:
    for number, alias in enumerate(("old", "new")):
        with db.begin() as connection:
            put_aliases(connection, "litellm", [Alias("key", "h1", alias, "t1")], NOW + timedelta(hours=number))
    read = token("read")
    assert [one["alias"] for one in api.get("/v1/identity/aliases", read).json()["aliases"]] == ["new"]
    assert [one["alias"] for one in api.get("/v1/identity/aliases", read, history=True).json()["aliases"]] == ["old", "new"]


def test_a_tenants_token_sees_no_rules(api: Api, token: TokenMaker) -> None:
    bound = token("admin", tenant="acme")
    for method, path, body in (
        ("GET", "/v1/identity/rules", None),
        ("GET", "/v1/identity/rules/versions", None),
        ("GET", "/v1/identity/aliases", None),
        ("PUT", "/v1/identity/rules", {"rules": RULES, "reason": "x"}),
        ("POST", "/v1/identity/preview", {"rules": RULES}),
        ("POST", "/v1/identity/test", {"record": {}}),
    ):
        assert api.call(method, path, bound, json=body).status_code == 403, path
