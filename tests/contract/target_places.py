"""One place per discovery adapter that names the targets it is told to, and can break; real protocols on local sockets."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit

import dns.flags
import dns.message
import dns.rcode
import dns.rrset
import yaml

from core.errors import Unavailable
from core.ports import FoundTarget, TargetSource
from ingest.discovery.dns import DnsSettings, DnsTargets
from ingest.discovery.file_sd import FileTargets
from ingest.discovery.kube_access import KubeAccess
from ingest.discovery.kubernetes import KubernetesSettings, KubernetesTargets
from ingest.discovery.labels import TargetDefaults
from ingest.discovery.prometheus import PrometheusTargets
from ingest.prometheus.settings import Access

DEFAULTS = TargetDefaults(gpu="A10G", count=1, cluster="west", namespace="ml", model_id="chat")
Reply = tuple[int, Any]


class Place(Protocol):
    """Where a source looks. ``name`` takes IP addresses; every engine listens on port 8000."""

    source: TargetSource

    def name(self, hosts: Sequence[str]) -> None: ...

    def break_(self) -> None: ...

    def close(self) -> None: ...


class FakeTargets:
    """The fake other tests use in the place of a source."""

    def __init__(self) -> None:
        self.hosts: Sequence[str] | None = ()

    def targets(self) -> Sequence[FoundTarget]:
        if self.hosts is None:
            raise Unavailable("is switched off")
        return [FoundTarget(f"http://{host}:8000/metrics", "A10G", 1, host, "west", "ml", "chat") for host in self.hosts]


class FakePlace:
    def __init__(self, _: Path) -> None:
        self.source = FakeTargets()

    def name(self, hosts: Sequence[str]) -> None:
        self.source.hosts = hosts

    def break_(self) -> None:
        self.source.hosts = None

    def close(self) -> None:
        return


class FilePlace:
    suffix, dump = ".json", staticmethod(json.dumps)

    def __init__(self, folder: Path) -> None:
        self._file = folder / f"engines{self.suffix}"
        self.source = FileTargets([str(folder / "*.json"), str(folder / "*.yaml")], DEFAULTS)

    def name(self, hosts: Sequence[str]) -> None:
        self._file.write_text(self.dump([{"targets": [f"{host}:8000" for host in hosts], "labels": {"job": "vllm"}}]))

    def break_(self) -> None:
        self._file.write_text('[{"targets": [')

    def close(self) -> None:
        return


class YamlPlace(FilePlace):
    suffix, dump = ".yaml", staticmethod(yaml.safe_dump)


class DnsPlace:
    """A DNS server on a UDP port of this machine that knows one name."""

    def __init__(self, _: Path) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])
        self.records: dict[tuple[str, str], list[str]] = {}
        self.broken = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        self.source = DnsTargets(self.settings())

    def settings(self, kind: Any = "A", name: str = "engines.test") -> DnsSettings:
        return DnsSettings(
            (name,), kind, 8000, servers=("127.0.0.1",), server_port=self.port, timeout_s=2.0, defaults=DEFAULTS
        )  # fmt: skip

    def name(self, hosts: Sequence[str]) -> None:
        self.records = {("engines.test.", "A"): list(hosts)}

    def break_(self) -> None:
        self.broken = True

    def close(self) -> None:
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                wire, client = self._socket.recvfrom(4096)
            except OSError:
                return
            self._socket.sendto(self._answer(dns.message.from_wire(wire)).to_wire(), client)

    def _answer(self, query: dns.message.Message) -> dns.message.Message:
        answer = dns.message.make_response(query)
        answer.flags |= dns.flags.RA
        question = query.question[0]
        kind, name = dns.rdatatype.to_text(question.rdtype), question.name.to_text().lower()
        found = self.records.get((name, kind), [])
        if self.broken:
            answer.set_rcode(dns.rcode.SERVFAIL)
        elif found:
            answer.answer.append(dns.rrset.from_text(question.name, 1, "IN", kind, *found))
        elif not any(known == name for known, _ in self.records):
            answer.set_rcode(dns.rcode.NXDOMAIN)
        return answer


class HttpPlace:
    """A local HTTP server whose ``reply`` judges each request."""

    def __init__(self) -> None:
        place = self
        self.asked: list[tuple[str, dict[str, str], dict[str, str]]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                pairs = parse_qsl(parts.query, keep_blank_values=True)
                headers = {name.lower(): value for name, value in self.headers.items()}
                place.asked.append((parts.path, dict(pairs), headers))
                twice = len(dict(pairs)) != len(pairs)
                status, body = (
                    (400, {"message": "repeated parameter"}) if twice else place.reply(parts.path, dict(pairs), headers)
                )
                text = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: object) -> None:
                return

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def reply(self, path: str, query: Mapping[str, str], headers: Mapping[str, str]) -> Reply:
        raise NotImplementedError

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


class PrometheusPlace(HttpPlace):
    """``/api/v1/targets`` as Prometheus 2 answers it."""

    def __init__(self, _: Path) -> None:
        super().__init__()
        self.hosts: Sequence[str] = ()
        self.broken = False
        self.source = PrometheusTargets(Access(self.url, timeout_s=5), {"job": "vllm"}, DEFAULTS)

    def name(self, hosts: Sequence[str]) -> None:
        self.hosts = hosts

    def break_(self) -> None:
        self.broken = True

    def reply(self, path: str, query: Mapping[str, str], headers: Mapping[str, str]) -> Reply:
        if self.broken:
            return 500, {"status": "error"}
        if path != "/api/v1/targets" or query != {"state": "active"}:
            return 404, {"status": "error"}
        rows = [self._row(host, "vllm") for host in self.hosts] + [self._row("10.9.9.9", "node")]
        return 200, {"status": "success", "data": {"activeTargets": rows, "droppedTargets": []}}

    @staticmethod
    def _row(host: str, job: str) -> dict[str, object]:
        labels = {"instance": f"{host}:8000", "job": job}
        return {"labels": labels, "scrapeUrl": f"http://{host}:8000/metrics", "health": "up", "scrapeInterval": "15s"}


class KubernetesPlace(HttpPlace):
    """Lists pods and tells nodes as an API server does: in pages, with versions, and refusing what a real one refuses."""

    PAGE = 2

    def __init__(self, _: Path) -> None:
        super().__init__()
        self.pods: list[dict[str, Any]] = []
        self.nodes: dict[str, dict[str, str]] = {}
        self.version = 100
        self.expire_next = 0
        self.forbidden: set[str] = set()
        self.provider_ids: dict[str, str] = {}
        self.broken = False
        self.token = "secret-1"
        self.source = KubernetesTargets(self.settings())

    def settings(self, **given: Any) -> KubernetesSettings:
        options = {"namespaces": ("ml",), "port": "http", "defaults": TargetDefaults(cluster="west", model_id="chat"), **given}
        return KubernetesSettings(options.pop("access", KubeAccess(self.url, token=self.token)), "app=vllm", **options)

    def name(self, hosts: Sequence[str]) -> None:
        self.pods = [pod(host) for host in hosts]
        self.nodes = {f"node-{host}": {"nvidia.com/gpu.product": "NVIDIA-A10G"} for host in hosts}
        self.version += 1

    def break_(self) -> None:
        self.broken = True

    def reply(self, path: str, query: Mapping[str, str], headers: Mapping[str, str]) -> Reply:
        if self.broken:
            return 500, _status(500, "InternalError", "etcd is down")
        if headers.get("authorization") != f"Bearer {self.token}":
            return 401, _status(401, "Unauthorized", "Unauthorized")
        if "application/json" not in headers.get("accept", ""):
            return 406, _status(406, "NotAcceptable", "only JSON")
        if path.startswith("/api/v1/nodes/"):
            return self._node(path.rpartition("/")[2], query)
        if path in ("/api/v1/namespaces/ml/pods", "/api/v1/pods"):
            return self._list(query)
        return 404, _status(404, "NotFound", "the server could not find the requested resource")

    def _node(self, name: str, query: Mapping[str, str]) -> Reply:
        if query:
            return 400, _status(400, "BadRequest", f"unknown parameters {query}")
        if name in self.forbidden:
            return 403, _status(403, "Forbidden", f'nodes "{name}" is forbidden')
        if name not in self.nodes:
            return 404, _status(404, "NotFound", f'nodes "{name}" not found')
        spec = {"providerID": self.provider_ids[name]} if name in self.provider_ids else {}
        return 200, {"kind": "Node", "apiVersion": "v1", "metadata": {"name": name, "labels": self.nodes[name]}, "spec": spec}

    def _list(self, query: Mapping[str, str]) -> Reply:
        unknown = set(query) - {"labelSelector", "limit", "continue", "resourceVersion", "resourceVersionMatch"}
        if unknown or query.get("labelSelector") != "app=vllm" or not query.get("limit", "").isdigit():
            return 400, _status(400, "BadRequest", f"bad parameters {sorted(query)}")
        if "continue" in query and "resourceVersion" in query:
            return 400, _status(400, "BadRequest", "specifying resource version is not allowed when using continue")
        if "resourceVersionMatch" in query and "resourceVersion" not in query:
            return 422, _status(422, "Invalid", "resourceVersionMatch is forbidden unless resourceVersion is provided")
        if query.get("resourceVersion", "0") > str(self.version):
            status = _status(504, "Timeout", "Too large resource version")
            return 504, {**status, "details": {"causes": [{"reason": "ResourceVersionTooLarge"}]}}
        if "continue" in query and self.expire_next:
            self.expire_next -= 1
            return 410, _status(410, "Expired", "The provided continue parameter is too old")
        start = int(query.get("continue", "0"))
        page = self.pods[start : start + self.PAGE]
        more = start + self.PAGE < len(self.pods)
        about = {"resourceVersion": str(self.version), **({"continue": str(start + self.PAGE)} if more else {})}
        return 200, {"kind": "PodList", "apiVersion": "v1", "metadata": about, "items": page}


def pod(
    host: str, *, notes: Mapping[str, str] | None = None, gpus: Mapping[str, str] | None = None, **status: Any
) -> dict[str, Any]:
    """A running pod of one container with one GPU."""
    limits = {"nvidia.com/gpu": "1"} if gpus is None else dict(gpus)
    ports = [{"name": "http", "containerPort": 8000}, {"name": "grpc", "containerPort": 9000}]
    about = {"name": f"vllm-{host}", "namespace": "ml", "labels": {"app": "vllm"}, "annotations": dict(notes or {})}
    return {
        "metadata": about,
        "spec": {"nodeName": f"node-{host}", "containers": [{"name": "vllm", "ports": ports, "resources": {"limits": limits}}]},
        "status": {"phase": "Running", "podIP": host, "startTime": "2026-11-30T10:00:00Z", **status},
    }


def _status(code: int, reason: str, message: str) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message}


PLACES: Mapping[str, Callable[[Path], Place]] = {
    "fake": FakePlace,
    "file-json": FilePlace,
    "file-yaml": YamlPlace,
    "dns": DnsPlace,
    "prometheus": PrometheusPlace,
    "kubernetes": KubernetesPlace,
}
