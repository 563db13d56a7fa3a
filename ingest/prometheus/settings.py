"""What has to be known of one Prometheus-compatible API to read engines from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from core.errors import BadInput

ASK_FOR_RAW: Mapping[str, str] = {
    "dedup": "false",
    "partial_response": "false",
    "max_source_resolution": "0s",
    "nocache": "1",
    "deny_partial_response": "1",
}
"""Sent with every query. Thanos: no merging of replicas, an error instead of half an answer, no downsampled blocks;
VictoriaMetrics: no cached answer, an error instead of half an answer. Prometheus and Mimir ignore them."""


@dataclass(frozen=True, slots=True)
class Access:
    """Where the API is and how it is signed in to. ``url`` is what ``/api/v1/query`` is appended to.

    ``token`` or ``token_file`` (read anew for every request, since such files rotate) is sent as a bearer token, ``username`` and
    ``password`` as basic auth; ``cert_file`` and ``key_file`` are the client's of mTLS; ``ca_file`` replaces the public roots;
    ``headers`` are added to every request (``X-Scope-OrgID`` of Mimir). Raises BadInput for a wrong or half-given value.
    """

    url: str
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    username: str = ""
    password: str = field(default="", repr=False)
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    params: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 30.0

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadInput("not an http address", field="prometheus.url", value=self.url, hint="use http://HOST:9090")
        if parts.username or parts.password:
            raise BadInput("holds a password", field="prometheus.url", hint="put it into username and password")
        if sum((bool(self.token), self.token_file is not None, bool(self.username))) > 1:
            raise BadInput("is given in two ways", field="prometheus.token", hint="keep one of token, token_file, username")
        if bool(self.cert_file) != bool(self.key_file):
            raise BadInput("needs its other half", field="prometheus.cert_file", hint="give cert_file and key_file together")


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """One query to follow.

    ``match`` are matchers on target labels (``job="vllm"``); without any, every engine the server holds is read. Labels named
    in ``replica_labels`` tell copies of one scrape apart (an HA pair). ``cluster_label``, ``namespace_label`` and ``node_label``
    give an engine's place where the series carry them, ``cluster``, ``namespace`` and ``node`` elsewhere. ``interval_s`` is the
    scrape interval, 0: seen from the samples. Samples younger than ``lag_s`` are waited for (a scrape is dated by its start);
    those that come up to ``overlap_s`` late are still taken. One query spans at most ``window_s``.
    """

    name: str
    access: Access
    match: str = ""
    cluster: str = "default"
    namespace: str = "default"
    node: str = ""
    cluster_label: str = "cluster"
    namespace_label: str = "namespace"
    node_label: str = "node"
    replica_labels: tuple[str, ...] = ("prometheus_replica", "replica", "__replica__")
    interval_s: float = 0.0
    poll_s: float = 15.0
    lag_s: float = 15.0
    overlap_s: float = 120.0
    window_s: float = 300.0
    since: timedelta = timedelta(hours=1)

    def __post_init__(self) -> None:
        if not self.name or not all(c.isalnum() or c in "-_." for c in self.name) or self.name.startswith("."):
            raise BadInput(
                "must be letters, digits, - and _",
                field="prometheus.name",
                value=self.name,
                hint="it names the file of the cursor",
            )
        if "{" in self.match or "}" in self.match:
            raise BadInput("must not hold braces", field="prometheus.match", value=self.match, hint='write job="vllm"')
        for name in ("poll_s", "window_s"):
            if getattr(self, name) <= 0:
                raise BadInput("must be more than 0", field=f"prometheus.{name}", value=getattr(self, name))
        for name in ("lag_s", "overlap_s", "interval_s"):
            if getattr(self, name) < 0:
                raise BadInput("must not be negative", field=f"prometheus.{name}", value=getattr(self, name))
