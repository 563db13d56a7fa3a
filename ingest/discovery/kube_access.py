"""How a Kubernetes API server is reached: from inside the cluster, or by a kubeconfig file."""

from __future__ import annotations

import base64
import binascii
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from core.errors import BadInput

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class KubeAccess:
    """``token_file`` is read anew for every list, since the kubelet rotates it. ``verify``: how the server is checked."""

    server: str
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    verify: ssl.SSLContext | bool = True
    namespace: str = "default"

    def bearer(self) -> str:
        """Raises OSError when the file cannot be read."""
        return self.token_file.read_text().strip() if self.token_file else self.token


def in_cluster(host: str, port: str, folder: Path = SERVICE_ACCOUNT) -> KubeAccess:
    """The pod's own service account; ``host`` and ``port``: KUBERNETES_SERVICE_HOST and _PORT. Raises BadInput outside a pod."""
    if not host or not (folder / "token").exists():
        raise BadInput("this is no pod", field="discovery.kubeconfig", hint="give a kubeconfig file, or run in the cluster")
    place = f"[{host}]" if ":" in host else host
    context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    file = folder / "namespace"
    namespace = file.read_text().strip() if file.exists() else "default"
    return KubeAccess(f"https://{place}:{port or '443'}", token_file=folder / "token", verify=context, namespace=namespace)


def from_kubeconfig(file: Path, context_name: str = "") -> KubeAccess:
    """The named (else the current) context of a kubeconfig with a token or client certificates.

    Raises BadInput naming what is missing; login programs (``exec``, ``auth-provider``) are not run.
    """
    try:
        body = yaml.safe_load(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadInput(f"cannot be read: {error}", where=str(file), field="kubeconfig") from error
    if not isinstance(body, dict):
        raise BadInput("is no kubeconfig", where=str(file), field="kubeconfig")
    context = _named(body, "contexts", context_name or body.get("current-context"), "context", file)
    cluster = _named(body, "clusters", context.get("cluster"), "cluster", file)
    user = _named(body, "users", context.get("user"), "user", file)
    if "server" not in cluster:
        raise BadInput("has no server", where=str(file), field="clusters")
    token_file = user.get("tokenFile")
    if not any(user.get(name) for name in ("token", "tokenFile", "client-certificate", "client-certificate-data")):
        hint = "give a user with a token, such as that of a service account"
        raise BadInput("has neither token nor client certificate", where=str(file), field="users", hint=hint)
    return KubeAccess(
        server=str(cluster["server"]).rstrip("/"),
        token=str(user.get("token", "")),
        token_file=file.parent / token_file if token_file else None,
        verify=_verify(cluster, user, file),
        namespace=str(context.get("namespace") or "default"),
    )


def _named(body: Mapping[str, Any], part: str, name: object, key: str, file: Path) -> Mapping[str, Any]:
    for row in body.get(part) or []:
        if isinstance(row, dict) and row.get("name") == name and isinstance(row.get(key), dict):
            found: Mapping[str, Any] = row[key]
            return found
    raise BadInput("is not in the file", where=str(file), field=part, value=name, hint="see `kubectl config get-contexts`")


def _verify(cluster: Mapping[str, Any], user: Mapping[str, Any], file: Path) -> ssl.SSLContext | bool:
    if not str(cluster["server"]).startswith("https:"):
        return True
    authority = _bytes(cluster, "certificate-authority", file)
    try:
        context = ssl.create_default_context(cadata=authority.decode() if authority else None)
        if cluster.get("insecure-skip-tls-verify") is True:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        certificate, key = _bytes(user, "client-certificate", file), _bytes(user, "client-key", file)
        if certificate and key:
            with tempfile.TemporaryDirectory() as folder:
                pair = Path(folder) / "pair.pem"
                pair.touch(0o600)
                pair.write_bytes(certificate + b"\n" + key)
                context.load_cert_chain(pair)
    except (ssl.SSLError, UnicodeDecodeError) as error:
        raise BadInput(f"holds a certificate that cannot be read: {error}", where=str(file), field="kubeconfig") from error
    return context


def _bytes(part: Mapping[str, Any], name: str, file: Path) -> bytes:
    """The file named, or the data held, empty where there is none."""
    try:
        if part.get(f"{name}-data"):
            return base64.b64decode(part[f"{name}-data"], validate=True)
        return (file.parent / part[name]).read_bytes() if part.get(name) else b""
    except (OSError, binascii.Error, TypeError) as error:
        raise BadInput(f"cannot be read: {error}", where=str(file), field=name) from error
