"""One world per actuator: something outside that it works, over real protocols on local sockets; and the fake."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

from control.fleet.kubernetes_scale import KubernetesActuator
from control.fleet.litellm_admin import LiteLLMActuator
from core.errors import Conflict, Unavailable
from core.fleet import Move, frozen_size
from core.ports import Actuator, FleetReading
from ingest.discovery.kube_access import KubeAccess

sys.path.insert(0, str(Path(__file__).parents[1] / "guard"))
from guard_servers import Server, answer


class World(Protocol):
    """``name``, ``address`` and ``move``: what the suite plans. ``meddle`` is somebody else's change; ``writes`` counts changes
    that came through the actuator; ``break_`` makes it unreachable until ``mend``."""

    name: str
    address: str
    move: Move
    options: Mapping[str, Any]
    actuator: Actuator

    @property
    def writes(self) -> int: ...

    def present(self) -> Any: ...

    def meddle(self) -> None: ...

    def break_(self) -> None: ...

    def mend(self) -> None: ...

    def close(self) -> None: ...


class FakeActuator:
    """The fake other tests use: switches are numbers in a dictionary, ``sizes`` what runs."""

    def __init__(self) -> None:
        self.most: dict[str, int] = {"pool": 8}
        self.sizes: dict[str, int] = {"pool": 3}
        self.writes, self.is_broken = 0, False

    def read(self, address: str) -> FleetReading:
        if self.is_broken:
            raise Unavailable("the fake is switched off")
        return FleetReading({"most": self.most[address]}, {"size": self.sizes[address]})

    def wanted(self, move: str, options: Mapping[str, Any], reading: FleetReading) -> Mapping[str, Any]:
        return {"most": frozen_size(reading.facts["size"], 1, "the fake")}

    def write(self, address: str, seen: Mapping[str, Any], value: Mapping[str, Any]) -> None:
        present = self.read(address).value
        if present == value:
            return
        if present != seen:
            raise Conflict(f"fake {address} was changed by somebody else")
        self.most[address] = int(value["most"])
        self.writes += 1

    def commands(self, address: str, value: Mapping[str, Any]) -> tuple[str, ...]:
        return (f"fake set {address} most={value['most']}",)


class FakeWorld:
    name, address, options = "fake", "pool", {}
    move: Move = "freeze"

    def __init__(self) -> None:
        self.actuator = FakeActuator()

    @property
    def writes(self) -> int:
        return self.actuator.writes

    def present(self) -> Any:
        return self.actuator.most["pool"]

    def meddle(self) -> None:
        self.actuator.most["pool"] = 99

    def break_(self) -> None:
        self.actuator.is_broken = True

    def mend(self) -> None:
        self.actuator.is_broken = False

    def close(self) -> None:
        return


HASH = "ab" * 32


class LiteLLMServer(Server):
    """The admin calls of LiteLLM 1.95.1 over rows in memory, in the shapes its own server answers."""

    def __init__(self) -> None:
        self.key: dict[str, Any] = {"blocked": None, "rpm_limit": 600, "tpm_limit": None, "max_budget": 25.5}
        self.model: dict[str, Any] = {"id": "m1", "db_model": True, "blocked": False}
        self.posts: list[tuple[str, dict[str, Any]]] = []
        self.is_broken = False
        super().__init__()

    def get(self, http: BaseHTTPRequestHandler) -> None:
        url = urlsplit(http.path)
        asked = {k: v[0] for k, v in parse_qs(url.query).items()}
        if self.is_broken:
            return answer(http, 503, {"error": "down"})
        if http.headers["authorization"] != "Bearer sk-master":
            return answer(http, 401, {"error": {"message": "Authentication Error"}})
        if url.path == "/key/info" and asked["key"] == HASH:
            return answer(http, 200, {"key": HASH, "info": self.key})
        if url.path == "/team/info" and asked["team_id"] == "red":
            return answer(http, 200, {"team_id": "red", "team_info": {"team_id": "red", **self.key}})
        if url.path == "/model/info":
            return answer(http, 200, {"data": [{"model_name": "tiny", "model_info": self.model}]})
        return answer(http, 404, {"error": {"message": "Key not found in database"}})

    def post(self, http: BaseHTTPRequestHandler, raw: bytes) -> None:
        body = json.loads(raw)
        if self.is_broken:
            return answer(http, 503, {"error": "down"})
        self.posts.append((http.path, body))
        kind, verb = http.path.strip("/").split("/")
        row = self.model if kind == "model" else self.key
        if verb in ("block", "unblock"):
            row["blocked"] = verb == "block"
        else:
            row.update({k: v for k, v in body.items() if k not in ("key", "team_id")})
        return answer(http, 200, row)


class LiteLLMWorld:
    name = "litellm"
    options: Mapping[str, Any] = {}
    move: Move = "block"

    def __init__(self, kind: str = "key", move: Move = "block") -> None:
        self.server = LiteLLMServer()
        self.actuator = LiteLLMActuator(self.server.url, "sk-master")
        self.kind, self.move = kind, move
        self.address = {"key": f"key/{HASH}", "team": "team/red", "model": "model/m1"}[kind]
        self.options = {"rpm_limit": 10, "tpm_limit": 5000, "max_budget": "20"} if move == "limit" else {}

    @property
    def writes(self) -> int:
        return len(self.server.posts)

    def present(self) -> Any:
        row = dict(self.server.model if self.kind == "model" else self.server.key)
        return {**row, "blocked": row["blocked"] is True}

    def meddle(self) -> None:
        if self.move == "limit":
            self.server.key["rpm_limit"] = 77
        else:
            row = self.server.model if self.kind == "model" else self.server.key
            row["blocked"] = row["blocked"] is not True

    def break_(self) -> None:
        self.server.is_broken = True

    def mend(self) -> None:
        self.server.is_broken = False

    def close(self) -> None:
        self.server.close()


class KubernetesServer(Server):
    """An API server of the published shape: one HPA, one KEDA scaled object and one Deployment's scale; merge patches with a
    resource version, 409 when it is another. ``conflicts``: so many patches meet somebody quicker, who changes a label."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {
            "horizontalpodautoscalers/tiny": {
                "spec": {"minReplicas": 2, "maxReplicas": 8}, "status": {"currentReplicas": 3}, "metadata": {},
            },
            "scaledobjects/tiny": {"spec": {"scaleTargetRef": {"name": "tiny"}}, "metadata": {"annotations": {"owner": "ml"}}},
            "deployments/tiny/scale": {"spec": {"replicas": 4}, "status": {"replicas": 3}, "metadata": {}},
        }  # fmt: skip
        self.version, self.patches, self.conflicts, self.is_broken = 10, 0, 0, False
        super().__init__()

    def _object(self, http: BaseHTTPRequestHandler) -> dict[str, Any] | None:
        if self.is_broken:
            answer(http, 503, {"kind": "Status", "code": 503})
        elif http.headers["authorization"] != "Bearer kube-token":
            answer(http, 403, {"kind": "Status", "code": 403})
        elif (name := http.path.partition("/namespaces/prod/")[2]) in self.objects:
            return self.objects[name]
        else:
            answer(http, 404, {"kind": "Status", "code": 404})
        return None

    def get(self, http: BaseHTTPRequestHandler) -> None:
        found = self._object(http)
        if found is not None:
            found["metadata"].setdefault("resourceVersion", "10")
            answer(http, 200, found)

    def patch(self, http: BaseHTTPRequestHandler, raw: bytes) -> None:
        found = self._object(http)
        if found is None:
            return None
        if self.conflicts:
            self.conflicts -= 1
            self.touch(found)
        body = json.loads(raw)
        if http.headers["content-type"] != "application/merge-patch+json":
            return answer(http, 415, {"kind": "Status", "code": 415})
        if body["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
            return answer(http, 409, {"kind": "Status", "reason": "Conflict", "code": 409})
        merge(found, body)
        self.patches += 1
        self.touch(found)
        return answer(http, 200, found)

    def touch(self, found: dict[str, Any]) -> None:
        self.version += 1
        found["metadata"]["resourceVersion"] = str(self.version)


def merge(into: dict[str, Any], patch: Mapping[str, Any]) -> None:
    """RFC 7386."""
    for name, value in patch.items():
        if value is None:
            into.pop(name, None)
        elif isinstance(value, dict):
            merge(into.setdefault(name, {}), value)
        else:
            into[name] = value


class KubernetesWorld:
    name = "kubernetes"
    move: Move = "freeze"
    options: Mapping[str, Any] = {}

    def __init__(self, kind: str) -> None:
        self.server, self.kind, self.address = KubernetesServer(), kind, f"{kind}/prod/tiny"
        self.actuator = KubernetesActuator(KubeAccess(self.server.url, token="kube-token"))
        place = {"hpa": "horizontalpodautoscalers/tiny", "scaledobject": "scaledobjects/tiny"}
        self._object = self.server.objects[place.get(kind, "deployments/tiny/scale")]

    @property
    def writes(self) -> int:
        return self.server.patches

    def present(self) -> Any:
        return json.loads(json.dumps((self._object["spec"], self._object["metadata"].get("annotations"))))

    def meddle(self) -> None:
        changed: dict[str, dict[str, Any]] = {
            "hpa": {"spec": {"maxReplicas": 20}},
            "scaledobject": {"metadata": {"annotations": {"autoscaling.keda.sh/paused-replicas": "1"}}},
            "deployment": {"spec": {"replicas": 9}},
        }
        merge(self._object, changed[self.kind])
        self.server.touch(self._object)

    def break_(self) -> None:
        self.server.is_broken = True

    def mend(self) -> None:
        self.server.is_broken = False

    def close(self) -> None:
        self.server.close()
