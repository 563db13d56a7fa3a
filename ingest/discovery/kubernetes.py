"""Engines that run as pods: listed by label through the API server, with the GPUs they were given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import httpx

from core.errors import BadInput, Refused, TokenfuseError, Unavailable
from core.ports import FoundTarget
from ingest.discovery.gpus import gpu_type
from ingest.discovery.kube_access import KubeAccess
from ingest.discovery.labels import TargetDefaults

PAGE = 500
SCRAPE, PORT, PATH, SCHEME = (f"prometheus.io/{name}" for name in ("scrape", "port", "path", "scheme"))
PRODUCTS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "cloud.google.com/gke-accelerator")
RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")
INSTANCE_TYPES = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
REPLICAS = "nvidia.com/gpu.replicas"
SHARED = "-SHARED"


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """Which pods are engines. ``namespaces`` empty: the whole cluster. ``port`` is a port's name or number; the annotation
    ``prometheus.io/port`` wins. ``model_label`` names the pod label that holds the model id, empty: as the page says."""

    access: KubeAccess
    selector: str
    namespaces: tuple[str, ...] = ()
    port: str = "http"
    path: str = "/metrics"
    model_label: str = ""
    timeout_s: float = 10.0
    defaults: TargetDefaults = field(default_factory=TargetDefaults)


class KubernetesTargets:
    """A TargetSource. Not shared between threads.

    Every call lists anew, at least as new as the list before; a list whose continuation expired (410) starts over.
    """

    def __init__(self, settings: KubernetesSettings, transport: httpx.BaseTransport | None = None) -> None:
        self._settings = settings
        self._client = httpx.Client(
            base_url=settings.access.server,
            verify=settings.access.verify,
            timeout=settings.timeout_s,
            trust_env=False,
            transport=transport,
        )
        self._seen: dict[str, str] = {}
        self._nodes: dict[str, _Node] = {}

    def pods(self) -> list[Mapping[str, Any]]:
        """The pods of the selector as the API server tells them, running or not."""
        return [pod for path in self._paths() for pod in self._list(path)]

    def targets(self) -> Sequence[FoundTarget]:
        pods = self.pods()
        names = {name for pod in pods if (name := pod.get("spec", {}).get("nodeName"))}
        known = {name: self._nodes.get(name) or self._node(name) for name in sorted(names)}
        self._nodes = {name: node for name, node in known.items() if node is not None}
        return [target for pod in pods if (target := self._target(pod)) is not None]

    def _paths(self) -> list[str]:
        chosen = self._settings.namespaces
        return [f"/api/v1/namespaces/{name}/pods" for name in chosen] if chosen else ["/api/v1/pods"]

    def _list(self, path: str) -> list[Mapping[str, Any]]:
        try:
            return self._walk(path, self._seen.get(path, ""))
        except _Gone:
            try:
                return self._walk(path, "")
            except _Gone as error:
                raise Unavailable("the list of pods expires while it is read", hint="is the API server overloaded?") from error

    def _walk(self, path: str, version: str) -> list[Mapping[str, Any]]:
        params = {"labelSelector": self._settings.selector, "limit": str(PAGE)}
        asked = {**params, "resourceVersion": version, "resourceVersionMatch": "NotOlderThan"} if version else params
        found: list[Mapping[str, Any]] = []
        while True:
            body = self._get(path, asked)
            about = body.get("metadata", {})
            found += body.get("items") or []
            self._seen[path] = str(about.get("resourceVersion", ""))
            if not about.get("continue"):
                return found
            asked = {**params, "continue": str(about["continue"])}

    def _node(self, name: str) -> _Node | None:
        """None where we may not read nodes: then the GPU type is unknown, and doctor says so."""
        try:
            node = self._get(f"/api/v1/nodes/{name}", {})
        except (Refused, BadInput):
            return None
        return _Node(node.get("metadata", {}).get("labels") or {}, node.get("spec", {}).get("providerID") or "")

    def _get(self, path: str, params: Mapping[str, str]) -> Mapping[str, Any]:
        where = f"{self._settings.access.server}{path}"
        try:
            bearer = self._settings.access.bearer()
            headers = {"accept": "application/json", **({"authorization": f"Bearer {bearer}"} if bearer else {})}
            answer = self._client.get(path, params=params, headers=headers)
            body = answer.json() if answer.headers.get("content-type", "").startswith("application/json") else None
        except (httpx.HTTPError, OSError, ValueError) as error:
            raise Unavailable(f"{where} does not answer: {error}", hint="is the API server up, and the token there?") from error
        if answer.status_code != 200:
            raise _refusal(answer.status_code, body, where)
        if not isinstance(body, dict):
            raise BadInput("does not answer like a Kubernetes API", where=where, field="discovery.kubernetes")
        return body

    def _target(self, pod: Mapping[str, Any]) -> FoundTarget | None:
        """None for a pod that cannot be asked: no address yet, over, or annotated not to be scraped."""
        about, spec, status = pod.get("metadata", {}), pod.get("spec", {}), pod.get("status", {})
        notes, labels = about.get("annotations") or {}, about.get("labels") or {}
        address, port = status.get("podIP"), _port(spec, notes, self._settings.port)
        if not address or status.get("phase") != "Running" or notes.get(SCRAPE) == "false" or port is None:
            return None
        host = f"[{address}]" if ":" in address else address
        path = notes.get(PATH, self._settings.path)
        node, defaults = spec.get("nodeName", ""), self._settings.defaults
        about_node = self._nodes.get(node) or _Node({}, "")
        gpu, count, unknown = _gpus(spec, about_node.labels, defaults)
        return FoundTarget(
            url=f"{'https' if notes.get(SCHEME) == 'https' else 'http'}://{host}:{port}/{path.lstrip('/')}",
            gpu=gpu,
            count=count,
            node=node,
            cluster=defaults.cluster,
            namespace=about.get("namespace", ""),
            model_id=labels.get(self._settings.model_label, defaults.model_id),
            since=_time(status.get("startTime")),
            unknown=unknown,
            provider_id=about_node.provider_id,
            instance_type=next((about_node.labels[name] for name in INSTANCE_TYPES if about_node.labels.get(name)), ""),
        )


@dataclass(frozen=True, slots=True)
class _Node:
    labels: Mapping[str, str]
    provider_id: str


class _Gone(Unavailable):
    """410, or a version the server has not reached: list anew."""


def _refusal(status: int, body: object, where: str) -> TokenfuseError:
    told = body if isinstance(body, dict) else {}
    message = str(told.get("message", ""))[:200]
    causes = {str(cause.get("reason")) for cause in (told.get("details") or {}).get("causes") or []}
    if status == 410 or (status == 504 and "ResourceVersionTooLarge" in causes):
        return _Gone(f"{where}: {message}")
    if status in (401, 403):
        return Refused(f"{where} refuses us with {status}: {message}", hint="allow get and list on pods, and get on nodes")
    if status in (400, 404, 422):
        return BadInput(
            f"answers {status}: {message}", where=where, field="discovery.kubernetes", hint="check selector and namespace"
        )
    return Unavailable(f"{where} answers {status}: {message}")


def _port(spec: Mapping[str, Any], notes: Mapping[str, str], wanted: str) -> int | None:
    """The annotation's port; else the number, or the port of that name; else the only port the pod declares."""
    text = notes.get(PORT, wanted)
    if text.isascii() and text.isdigit():
        return int(text) if 0 < int(text) < 65536 else None
    ports = [port for container in spec.get("containers") or [] for port in container.get("ports") or []]
    named = [port["containerPort"] for port in ports if port.get("name") == text]
    if named:
        return int(named[0])
    return int(ports[0]["containerPort"]) if len(ports) == 1 else None


def _gpus(spec: Mapping[str, Any], node: Mapping[str, str], defaults: TargetDefaults) -> tuple[str, int, str]:
    """(type, count, why not known). Whole GPUs only: slices and time shares have no price of their own."""
    asked = _requests(spec)
    sliced = sorted(name for name in asked if name.startswith("nvidia.com/mig-"))
    product = next((node[name] for name in PRODUCTS if node.get(name)), "")
    if sliced:
        return "", 0, f"the pod holds a slice ({sliced[0]}): declare its share with `tokenfuse node declare`"
    if product.endswith(SHARED) or int(node.get(REPLICAS, "1") or 1) > 1:
        return "", 0, "its GPU is time-shared: declare its share with `tokenfuse node declare`"
    count = sum(asked.get(name, 0) for name in RESOURCES) or defaults.count
    gpu = gpu_type(product) if product else defaults.gpu
    if not gpu:
        return "", count, "the node's labels do not name its GPU (nvidia.com/gpu.product), or we may not read nodes"
    return gpu, count, "" if count else "the pod requests no GPU"


def _requests(spec: Mapping[str, Any]) -> dict[str, int]:
    """GPUs by resource name over all containers; a request that is missing equals the limit."""
    total: dict[str, int] = {}
    for container in spec.get("containers") or []:
        given = container.get("resources") or {}
        for name, amount in {**(given.get("limits") or {}), **(given.get("requests") or {})}.items():
            if "/gpu" in name or "/mig-" in name:
                total[name] = total.get(name, 0) + int(amount)
    return total


def _time(text: object) -> datetime | None:
    return datetime.fromisoformat(text) if isinstance(text, str) else None
