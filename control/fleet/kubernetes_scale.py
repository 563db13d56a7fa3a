"""Kubernetes as an actuator: a pool grows no further than it is now.

``hpa/NAMESPACE/NAME`` lowers ``spec.maxReplicas`` (autoscaling/v2), ``scaledobject/NAMESPACE/NAME`` sets KEDA's annotation
``autoscaling.keda.sh/paused-replicas``, ``deployment/NAMESPACE/NAME`` pins the scale subresource where nothing scales by itself.
Every change is a JSON merge patch that carries the resource version it was read at: a 409 is read again, and only tried again
while what we saw still stands.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import httpx

from core.errors import BadInput, Conflict, NotFound, Refused, TokenfuseError, Unavailable
from core.fleet import frozen_size
from core.ports import FleetReading
from ingest.discovery.kube_access import KubeAccess

TIMEOUT_S = 10.0
TRIES = 4
PAUSED = "autoscaling.keda.sh/paused-replicas"
PATHS = {
    "hpa": "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers/{}",
    "scaledobject": "/apis/keda.sh/v1alpha1/namespaces/{}/scaledobjects/{}",
    "deployment": "/apis/apps/v1/namespaces/{}/deployments/{}/scale",
}
VERBS = {"hpa": "horizontalpodautoscalers", "scaledobject": "scaledobjects", "deployment": "deployments/scale"}


class KubernetesActuator:
    """Needs get and patch on what it works (docs/actuators.md); to read a scaled object, get on deployments/scale too."""

    def __init__(self, access: KubeAccess, transport: httpx.BaseTransport | None = None) -> None:
        self._access = access
        self._client = httpx.Client(
            base_url=access.server, verify=access.verify, timeout=TIMEOUT_S, trust_env=False, transport=transport
        )

    def read(self, address: str) -> FleetReading:
        return self._reading(address, self._get(address))

    def wanted(self, move: str, options: Mapping[str, Any], reading: FleetReading) -> Mapping[str, Any]:
        if move != "freeze":
            raise Refused(f"Kubernetes cannot {move}", hint="it freezes a pool at its present size")
        (name,) = reading.value
        size = frozen_size(reading.facts.get("size"), reading.facts.get("least", 1), "the pool")
        if name == "paused_replicas":
            return {name: str(size)}
        return {name: min(size, reading.value[name]) if name == "max_replicas" else size}

    def write(self, address: str, seen: Mapping[str, Any], value: Mapping[str, Any]) -> None:
        for _ in range(TRIES):
            body = self._get(address)
            present = _value(address, body)
            if present == value:
                return
            if present != seen:
                raise Conflict(f"kubernetes {address} was changed by somebody else")
            version = body.get("metadata", {}).get("resourceVersion")
            patch = {**_patch(value), "metadata": {**_patch(value).get("metadata", {}), "resourceVersion": version}}
            if self._send("PATCH", address, patch) is not None:
                return
        raise Unavailable(f"kubernetes {address} changes faster than it can be written")

    def commands(self, address: str, value: Mapping[str, Any]) -> tuple[str, ...]:
        kind, namespace, name = address.split("/")
        (wanted,) = value.values()
        if kind == "deployment":
            return (f"kubectl scale deployment {name} -n {namespace} --replicas={wanted}",)
        if kind == "scaledobject":
            how = f"{PAUSED}-" if wanted is None else f"{PAUSED}={wanted} --overwrite"
            return (f"kubectl annotate scaledobject {name} -n {namespace} {how}",)
        return (f"kubectl patch hpa {name} -n {namespace} --type=merge -p '{json.dumps(_patch(value))}'",)

    def _reading(self, address: str, body: Mapping[str, Any]) -> FleetReading:
        kind, namespace, _ = address.split("/")
        spec, status = body.get("spec") or {}, body.get("status") or {}
        if kind == "hpa":
            facts = {"size": status.get("currentReplicas"), "least": spec.get("minReplicas", 1)}
        elif kind == "scaledobject":
            scaled = spec.get("scaleTargetRef") or {}
            if scaled.get("kind", "Deployment") != "Deployment":
                raise Refused(f"kubernetes {address} scales no Deployment", hint="name its HPA instead")
            pool = self._get(f"deployment/{namespace}/{scaled.get('name', '')}")
            facts = {"size": (pool.get("status") or {}).get("replicas"), "least": 0}
        else:
            facts = {"size": status.get("replicas"), "least": 0}
        return FleetReading(_value(address, body), facts)

    def _get(self, address: str) -> Mapping[str, Any]:
        found = self._send("GET", address)
        if found is None:
            raise Unavailable(f"kubernetes {address} cannot be read (409)")
        return found

    def _send(self, method: str, address: str, patch: Mapping[str, Any] | None = None) -> Mapping[str, Any] | None:
        """The object as the server answers it; None: 409, somebody was quicker."""
        kind, namespace, name = address.split("/")
        path = PATHS[kind].format(namespace, name)
        headers = {"accept": "application/json", "content-type": "application/merge-patch+json"}
        try:
            bearer = self._access.bearer()
            headers |= {"authorization": f"Bearer {bearer}"} if bearer else {}
            content = None if patch is None else json.dumps(patch)
            answer = self._client.request(method, path, content=content, headers=headers)
            body = answer.json() if answer.status_code == 200 else {}
        except (httpx.HTTPError, OSError, ValueError) as error:
            raise Unavailable(f"the Kubernetes API does not answer ({type(error).__name__})") from error
        if answer.status_code == 409:
            return None
        if answer.status_code != 200 or not isinstance(body, dict):
            raise _refusal(answer.status_code, method, address, kind)
        return body


def _value(address: str, body: Mapping[str, Any]) -> dict[str, Any]:
    kind = address.split("/")[0]
    spec = body.get("spec") or {}
    if kind == "scaledobject":
        notes = (body.get("metadata") or {}).get("annotations") or {}
        return {"paused_replicas": notes.get(PAUSED)}
    name, field = ("max_replicas", "maxReplicas") if kind == "hpa" else ("replicas", "replicas")
    if not isinstance(spec.get(field), int):
        raise BadInput(f"tells no spec.{field}", where=f"kubernetes {address}", field=field)
    return {name: spec[field]}


def _patch(value: Mapping[str, Any]) -> dict[str, Any]:
    ((name, wanted),) = value.items()
    if name == "paused_replicas":
        return {"metadata": {"annotations": {PAUSED: wanted}}}
    return {"spec": {"maxReplicas" if name == "max_replicas" else "replicas": wanted}}


def _refusal(status: int, method: str, address: str, kind: str) -> TokenfuseError:
    if status in (401, 403):
        verb = "get" if method == "GET" else "patch"
        return Refused(f"the Kubernetes API refuses {verb} of {address} ({status})", hint=f"allow {verb} on {VERBS[kind]}")
    if status == 404:
        return NotFound(f"kubernetes {address} is not there")
    if status == 429 or status >= 500:
        return Unavailable(f"the Kubernetes API answers {status} for {address}")
    return BadInput(f"answers {status}", where=f"kubernetes {address}")
