"""LiteLLM's admin API as an actuator: block a key, a team or a model, lower a key's or a team's limits.

Shapes of LiteLLM 1.95.1: ``/key/info?key=HASH`` answers ``{key, info}``, ``/team/info?team_id=ID`` ``{team_id, team_info}``,
``/model/info?litellm_model_id=ID`` ``{data: [{model_info: {id, db_model, blocked}}]}``; ``/X/block`` and ``/X/unblock`` take the
id, ``/X/update`` the limits, null for none. It keeps them in its database; other proxies of the fleet see a change within 60 s
(keys and teams, cached) or 30 s (models). It has no way to say "only if it still is": between our look and our write somebody
else's change can be lost; what stood before is kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import httpx

from core.errors import BadInput, Conflict, NotFound, Refused, Unavailable
from core.fleet import LIMITS, lowered
from core.ports import FleetReading

TIMEOUT_S = 10.0
IDS = {"key": "key", "team": "team_id", "model": "model_id"}
INFO = {"key": ("/key/info", "key"), "team": ("/team/info", "team_id"), "model": ("/model/info", "litellm_model_id")}


class LiteLLMActuator:
    """``url`` without a path; ``key`` is an admin's and appears in no text."""

    def __init__(self, url: str, key: str, transport: httpx.BaseTransport | None = None) -> None:
        self._url = url.rstrip("/")
        headers = {"authorization": f"Bearer {key}"}
        self._client = httpx.Client(
            timeout=TIMEOUT_S, follow_redirects=False, trust_env=False, headers=headers, transport=transport
        )

    def read(self, address: str) -> FleetReading:
        kind, name = address.split("/", 1)
        path, query = INFO[kind]
        body = self._call("GET", path, params={query: name})
        if kind == "model":
            return FleetReading({"blocked": _model_blocked(body, name)})
        row = body.get("info" if kind == "key" else "team_info")
        if not isinstance(row, dict):
            raise BadInput("does not answer like LiteLLM", where=f"{self._url}{path}", field=kind)
        return FleetReading({"blocked": row.get("blocked") is True, **{n: _plain(n, row.get(n)) for n in LIMITS}})

    def wanted(self, move: str, options: Mapping[str, Any], reading: FleetReading) -> Mapping[str, Any]:
        if move == "block":
            return {"blocked": True}
        if move == "limit" and options and all(name in reading.value for name in options):
            return lowered(options, reading.value)
        raise Refused(f"LiteLLM cannot {move} this", hint="keys and teams take limits, models only a block")

    def write(self, address: str, seen: Mapping[str, Any], value: Mapping[str, Any]) -> None:
        present = self.read(address).value
        if all(present.get(name) == wanted for name, wanted in value.items()):
            return
        if any(present.get(name) != known for name, known in seen.items()):
            raise Conflict(f"litellm {address} was changed by somebody else")
        for path, body in _calls(address, value):
            self._call("POST", path, json=body)

    def commands(self, address: str, value: Mapping[str, Any]) -> tuple[str, ...]:
        headers = "-H \"Authorization: Bearer $LITELLM_MASTER_KEY\" -H 'Content-Type: application/json'"
        calls = _calls(address, value)
        return tuple(f"curl -X POST {self._url}{path} {headers} -d '{json.dumps(body)}'" for path, body in calls)

    def _call(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        try:
            answer = self._client.request(method, f"{self._url}{path}", **more)
        except httpx.HTTPError as error:
            raise Unavailable(f"LiteLLM at {self._url} does not answer ({type(error).__name__})") from error
        if answer.status_code != 200:
            raise _refusal(answer, f"LiteLLM {method} {path}")
        try:
            body = answer.json()
        except ValueError as error:
            raise BadInput("does not answer in JSON", where=f"{self._url}{path}", field="body") from error
        return body if isinstance(body, dict) else {}


def _calls(address: str, value: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    kind, name = address.split("/", 1)
    found: list[tuple[str, dict[str, Any]]] = []
    if "blocked" in value:
        found.append((f"/{kind}/{'block' if value['blocked'] else 'unblock'}", {IDS[kind]: name}))
    limits = {n: float(v) if n == "max_budget" and v is not None else v for n, v in value.items() if n != "blocked"}
    if limits:
        found.append((f"/{kind}/update", {IDS[kind]: name, **limits}))
    return found


def _plain(name: str, value: Any) -> Any:
    """A budget as a decimal string: JSON numbers of money are not kept as floats."""
    if value is None or name != "max_budget":
        return value
    return format(Decimal(str(value)).normalize(), "f")


def _model_blocked(body: Mapping[str, Any], name: str) -> bool:
    for row in body.get("data") or ():
        about = row.get("model_info") if isinstance(row, dict) else None
        if isinstance(about, dict) and about.get("id") == name:
            if about.get("db_model") is not True:
                raise Refused(
                    f"model {name} stands in LiteLLM's configuration file", hint="only models of its database can be blocked"
                )
            return about.get("blocked") is True
    raise NotFound(f"LiteLLM knows no model {name}", hint="see the ids in GET /model/info")


def _refusal(answer: httpx.Response, where: str) -> Exception:
    said = answer.text[:200]
    if "DB" in said or "atabase not connected" in said:
        return Refused(
            f"{where}: this proxy has no database", hint="LiteLLM keeps keys, teams and blocks in one; see docs/actuators.md"
        )
    if answer.status_code in (401, 403):
        return Refused(f"{where}: the key is not allowed to", hint="setting litellm_key must be an admin's key")
    if answer.status_code == 404:
        return NotFound(f"{where}: it is not there")
    if answer.status_code == 429 or answer.status_code >= 500:
        return Unavailable(f"{where}: answers {answer.status_code}")
    return BadInput(f"answers {answer.status_code}: {said}", where=where)
