"""From settings to what reads and finds engines: Prometheus queries and discovery."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cli.settings import Settings
from cli.settings_sources import DiscoverySetting, PrometheusSetting, span
from core.errors import BadInput
from core.ports import FoundTarget, TargetSource
from ingest.discovery.dns import DnsSettings, DnsTargets
from ingest.discovery.file_sd import FileTargets
from ingest.discovery.kube_access import from_kubeconfig, in_cluster
from ingest.discovery.kubernetes import KubernetesSettings, KubernetesTargets
from ingest.discovery.labels import TargetDefaults
from ingest.discovery.prometheus import PrometheusTargets
from ingest.discovery.static import StaticTargets
from ingest.engine.scraper import Target
from ingest.prometheus.settings import Access, PrometheusSettings


def access(setting: PrometheusSetting) -> Access:
    def secret(value: object) -> str:
        return str(value.get_secret_value()) if hasattr(value, "get_secret_value") else ""

    return Access(
        url=setting.url,
        token=secret(setting.token),
        token_file=setting.token_file,
        username=setting.username,
        password=secret(setting.password),
        ca_file=setting.ca_file,
        cert_file=setting.cert_file,
        key_file=setting.key_file,
        headers={name: secret(value) for name, value in setting.headers.items()},
        params=setting.params,
    )


def prometheus_settings(setting: PrometheusSetting) -> PrometheusSettings:
    return PrometheusSettings(
        name=setting.name,
        access=access(setting),
        match=setting.match,
        cluster=setting.cluster,
        namespace=setting.namespace,
        node=setting.node,
        cluster_label=setting.cluster_label,
        namespace_label=setting.namespace_label,
        node_label=setting.node_label,
        replica_labels=setting.replica_labels,
        interval_s=setting.interval_s,
        poll_s=setting.poll_s,
        lag_s=setting.lag_s,
        overlap_s=setting.overlap_s,
        window_s=setting.window_s,
        since=span(setting.since, f"prometheus.{setting.name}.since"),
    )


def cursor_file(settings: Settings, name: str, kind: str = "") -> Path:
    return settings.data_dir / "prometheus" / f"{name}{kind}.json"


def servers_read(settings: Settings) -> list[PrometheusSetting]:
    """The Prometheus blocks to read samples from. Raises BadInput for a name that is used twice."""
    names = [setting.name for setting in settings.prometheus]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BadInput("is used twice", field="prometheus.name", value=twice, hint="each server needs a name of its own")
    return [setting for setting in settings.prometheus if setting.read]


def static_targets(settings: Settings) -> StaticTargets:
    return StaticTargets(
        [
            FoundTarget(t.url, t.gpu, t.count, t.node, t.cluster, t.namespace, t.model_id, kind=t.kind)
            for t in settings.targets
        ]
    )  # fmt: skip


def discovery_sources(settings: Settings) -> dict[str, TargetSource]:
    """The targets of the settings first, then each block's. Raises BadInput for a block that lacks something."""
    found: dict[str, TargetSource] = {"settings": static_targets(settings)}
    for setting in settings.discovery:
        if setting.name in found:
            raise BadInput("is used twice", field="discovery.name", value=setting.name, hint="choose another one")
        found[setting.name] = _BUILDERS[setting.kind](_Block(setting, settings))
    return found


def scrape_target_of(found: FoundTarget) -> Target:
    return Target(
        found.url, found.gpu, found.count, found.node, found.cluster, found.namespace, found.model_id or None, found.kind
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Block:
    setting: DiscoverySetting
    settings: Settings

    @property
    def defaults(self) -> TargetDefaults:
        s = self.setting
        return TargetDefaults(s.gpu, s.count, s.node, s.cluster, s.namespace, s.model_id)

    def need(self, name: str, hint: str) -> None:
        if not getattr(self.setting, name):
            raise BadInput("is not set", where=f"discovery {self.setting.name}", field=name, hint=hint)


def _files(block: _Block) -> TargetSource:
    block.need("files", 'write files = ["/etc/tokenfuse/targets/*.yaml"]')
    return FileTargets(block.setting.files, block.defaults)


def _dns(block: _Block) -> TargetSource:
    block.need("names", 'write names = ["vllm.ml.svc.cluster.local"]')
    s = block.setting
    if s.type != "SRV" and not (s.port.isdigit() and 0 < int(s.port) < 65536):
        raise BadInput(
            "must be a port number", where=f"discovery {s.name}", field="port", value=s.port, hint="SRV records bring it"
        )
    settings = DnsSettings(
        names=s.names,
        type=s.type,
        port=int(s.port or 0),
        path=s.path,
        scheme=s.scheme,
        servers=s.servers,
        server_port=s.server_port,
        defaults=block.defaults,
    )
    return DnsTargets(settings)


def _prometheus(block: _Block) -> TargetSource:
    block.need("prometheus", "name a [[prometheus]] block (read = false: its samples are then not read as well)")
    named = [setting for setting in block.settings.prometheus if setting.name == block.setting.prometheus]
    if not named:
        where = f"discovery {block.setting.name}"
        raise BadInput("is no [[prometheus]] block", where=where, field="prometheus", value=block.setting.prometheus)
    return PrometheusTargets(access(named[0]), block.setting.labels, block.defaults)


def _kubernetes(block: _Block) -> TargetSource:
    block.need("selector", 'write selector = "app=vllm"')
    s = block.setting
    environment = os.environ
    found = (
        from_kubeconfig(s.kubeconfig, s.context)
        if s.kubeconfig
        else in_cluster(environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", ""))
    )
    return KubernetesTargets(
        KubernetesSettings(
            access=found,
            selector=s.selector,
            namespaces=s.namespaces,
            port=s.port or "http",
            path=s.path,
            model_label=s.model_label,
            defaults=block.defaults,
        )
    )


_BUILDERS: Mapping[str, Callable[[_Block], TargetSource]] = {
    "file": _files,
    "dns": _dns,
    "prometheus": _prometheus,
    "kubernetes": _kubernetes,
}
