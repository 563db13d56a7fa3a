"""What every TargetSource does, and what each does besides."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from target_places import DEFAULTS, PLACES, DnsPlace, FakePlace, KubernetesPlace, Place, pod

from core.errors import BadInput, Refused, Unavailable
from core.ports import FoundTarget
from ingest.discovery.dns import DnsTargets
from ingest.discovery.file_sd import FileTargets
from ingest.discovery.follow import Discovery
from ingest.discovery.gpus import gpu_type
from ingest.discovery.kube_access import KubeAccess, from_kubeconfig, in_cluster
from ingest.discovery.kubernetes import KubernetesTargets
from ingest.discovery.static import StaticTargets

NOW = datetime(2026, 11, 30, 14, tzinfo=UTC)


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    found = PLACES[request.param](tmp_path)
    yield found
    found.close()


@pytest.fixture
def kubernetes(tmp_path: Path) -> Iterator[KubernetesPlace]:
    found = KubernetesPlace(tmp_path)
    yield found
    found.close()


@pytest.fixture
def dns(tmp_path: Path) -> Iterator[DnsPlace]:
    found = DnsPlace(tmp_path)
    yield found
    found.close()


def urls(targets: object) -> list[str]:
    return sorted(target.url for target in targets)  # type: ignore[attr-defined]


def test_every_target_has_its_address_and_the_capacity_behind_it(place: Place) -> None:
    place.name(["10.0.0.1", "10.0.0.2", "10.0.0.3"])
    found = sorted(place.source.targets(), key=lambda target: target.url)
    assert urls(found) == [f"http://10.0.0.{n}:8000/metrics" for n in (1, 2, 3)]
    first = found[0]
    assert (first.gpu, first.count, first.cluster, first.namespace, first.model_id) == ("A10G", 1, "west", "ml", "chat")
    assert first.node.endswith("10.0.0.1")
    assert first.unknown == ""


def test_targets_come_and_go(place: Place) -> None:
    seen = []
    for hosts in (["10.0.0.1"], ["10.0.0.1", "10.0.0.2"], ["10.0.0.2"], []):
        place.name(hosts)
        seen.append([url.split("/")[2].split(":")[0] for url in urls(place.source.targets())])
    assert seen == [["10.0.0.1"], ["10.0.0.1", "10.0.0.2"], ["10.0.0.2"], []]


def test_not_being_able_to_tell_is_an_error_and_never_an_empty_answer(place: Place) -> None:
    place.name(["10.0.0.1"])
    place.break_()
    with pytest.raises((Unavailable, Refused, BadInput)):
        place.source.targets()


def test_what_was_known_stays_while_a_source_does_not_answer(place: Place) -> None:
    discovery = Discovery({"pool": place.source}, lambda: NOW)
    place.name(["10.0.0.1"])
    discovery.look()
    place.break_()
    change = discovery.look()
    assert urls(discovery.current) == ["http://10.0.0.1:8000/metrics"]
    assert (change.went, change.whole) == ((), False)
    assert [(fault.kind, fault.source) for fault in change.faults] == [("source_down", "discovery pool")]


def test_a_target_that_went_is_a_gap_with_its_name() -> None:
    place = FakePlace(Path())
    discovery = Discovery({"pool": place.source}, lambda: NOW)
    place.name(["10.0.0.1", "10.0.0.2"])
    assert urls(discovery.look().came) == ["http://10.0.0.1:8000/metrics", "http://10.0.0.2:8000/metrics"]
    place.name(["10.0.0.2", "10.0.0.3"])
    change = discovery.look()
    assert (urls(change.came), urls(change.went)) == (["http://10.0.0.3:8000/metrics"], ["http://10.0.0.1:8000/metrics"])
    assert [(fault.kind, fault.source) for fault in change.faults] == [("target_vanished", "http://10.0.0.1:8000/metrics")]


def test_a_target_of_two_sources_is_one_as_the_first_says() -> None:
    place = FakePlace(Path())
    place.name(["10.0.0.1"])
    settings = StaticTargets([FoundTarget("https://10.0.0.1:8000/metrics", "H100", 8, "node-1")])
    discovery = Discovery({"settings": settings, "pool": place.source}, lambda: NOW)
    change = discovery.look()
    assert [(target.gpu, target.count) for target in change.now] == [("H100", 8)]
    assert [fault.kind for fault in change.faults] == ["read_twice"]


def test_a_target_that_is_no_address_is_left_out_and_named() -> None:
    discovery = Discovery({"settings": StaticTargets([FoundTarget("gpu-1"), FoundTarget("http://gpu-2")])}, lambda: NOW)
    change = discovery.look()
    assert urls(change.now) == ["http://gpu-2"]
    assert [fault.kind for fault in change.faults] == ["target_down"]


# --- files ---------------------------------------------------------------------------------------------------------------


def test_labels_of_a_file_win_over_the_block(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "- targets: [gpu-1:8000, gpu-2:9000]\n"
        "  labels: {gpu: H100, count: 8, node: rack-1, __metrics_path__: /engine/metrics, __scheme__: https, model_id: long}\n"
    )
    first, second = FileTargets([str(tmp_path / "*.yaml")], DEFAULTS).targets()
    assert (first.url, second.url) == ("https://gpu-1:8000/engine/metrics", "https://gpu-2:9000/engine/metrics")
    assert (first.gpu, first.count, first.node, first.model_id, first.cluster) == ("H100", 8, "rack-1", "long", "west")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("{}", "list"),
        ("- targets: gpu-1:8000", "targets"),
        ("- targets: [1]", "targets"),
        ("- targets: ['']", "targets"),
        ("- {targets: [a:1], labels: [x]}", "labels"),
        ("- {targets: [a:1], labels: {count: many}}", "count"),
        ("- {targets: [a:1], labels: {count: 0}}", "count"),
        ("- 7", "targets"),
        ("[", "cannot be read"),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong(tmp_path: Path, text: str, part: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(BadInput) as caught:
        FileTargets([str(tmp_path / "a.yaml")], DEFAULTS).targets()
    assert "a.yaml" in str(caught.value)
    assert part in str(caught.value)


# --- DNS -----------------------------------------------------------------------------------------------------------------


def test_srv_records_bring_their_port(dns: DnsPlace) -> None:
    dns.records = {("_http._tcp.engines.test.", "SRV"): ["0 5 8001 gpu-1.engines.test.", "0 5 8002 gpu-2.engines.test."]}
    source = DnsTargets(dns.settings("SRV", "_http._tcp.engines.test"))
    assert urls(source.targets()) == ["http://gpu-1.engines.test:8001/metrics", "http://gpu-2.engines.test:8002/metrics"]


def test_ipv6_addresses_are_bracketed(dns: DnsPlace) -> None:
    dns.records = {("engines.test.", "AAAA"): ["fd00::1"]}
    assert urls(DnsTargets(dns.settings("AAAA")).targets()) == ["http://[fd00::1]:8000/metrics"]


def test_a_name_without_records_has_no_targets(dns: DnsPlace) -> None:
    dns.records = {("engines.test.", "AAAA"): ["fd00::1"]}
    assert DnsTargets(dns.settings("A")).targets() == []
    assert DnsTargets(dns.settings("A", "nobody.test")).targets() == []


# --- Kubernetes ----------------------------------------------------------------------------------------------------------


def one(place: KubernetesPlace, made: dict[str, object], labels: dict[str, str] | None = None, **settings: object) -> FoundTarget:
    place.pods = [made]
    place.nodes = {"node-10.0.0.1": {"nvidia.com/gpu.product": "NVIDIA-A10G"} if labels is None else labels}
    [found] = KubernetesTargets(place.settings(**settings)).targets()
    return found


def test_a_node_is_known_by_the_id_its_cloud_bills(kubernetes: KubernetesPlace) -> None:
    kubernetes.provider_ids = {"node-10.0.0.1": "aws:///us-east-1a/i-0abc"}
    found = one(kubernetes, pod("10.0.0.1"), {"node.kubernetes.io/instance-type": "g5.xlarge"})
    assert (found.provider_id, found.instance_type) == ("aws:///us-east-1a/i-0abc", "g5.xlarge")
    bare = one(kubernetes, pod("10.0.0.2"))
    assert (bare.provider_id, bare.instance_type) == ("", "")


def test_a_list_in_pages_is_read_whole_and_the_next_is_at_least_as_new(kubernetes: KubernetesPlace) -> None:
    kubernetes.name([f"10.0.0.{n}" for n in range(1, 6)])
    assert len(kubernetes.source.targets()) == 5
    kubernetes.asked.clear()
    assert len(kubernetes.source.targets()) == 5
    lists = [query for path, query, _ in kubernetes.asked if path.endswith("/pods")]
    assert lists[0]["resourceVersion"] == str(kubernetes.version)
    assert lists[0]["resourceVersionMatch"] == "NotOlderThan"
    assert [query.get("continue") for query in lists] == [None, "2", "4"]


def test_a_list_that_expires_while_it_is_read_starts_over(kubernetes: KubernetesPlace) -> None:
    kubernetes.name([f"10.0.0.{n}" for n in range(1, 6)])
    kubernetes.expire_next = 1
    assert len(kubernetes.source.targets()) == 5
    kubernetes.expire_next = 2
    with pytest.raises(Unavailable, match="expires"):
        kubernetes.source.targets()


def test_a_server_restored_to_an_older_version_is_listed_anew(kubernetes: KubernetesPlace) -> None:
    kubernetes.name(["10.0.0.1"])
    kubernetes.version = 900
    kubernetes.source.targets()
    kubernetes.version = 500
    assert len(kubernetes.source.targets()) == 1


def test_the_token_file_is_read_anew_for_it_rotates(kubernetes: KubernetesPlace, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret-1\n")
    source = KubernetesTargets(kubernetes.settings(access=KubeAccess(kubernetes.url, token_file=file)))
    kubernetes.name(["10.0.0.1"])
    assert len(source.targets()) == 1
    kubernetes.token = "secret-2"
    with pytest.raises(Refused, match="401"):
        source.targets()
    file.write_text("secret-2\n")
    assert len(source.targets()) == 1


@pytest.mark.parametrize(
    ("made", "settings", "url"),
    [
        (pod("10.0.0.1"), {}, "http://10.0.0.1:8000/metrics"),
        (pod("10.0.0.1"), {"port": "grpc"}, "http://10.0.0.1:9000/metrics"),
        (pod("10.0.0.1"), {"port": "8080"}, "http://10.0.0.1:8080/metrics"),
        (pod("10.0.0.1", notes={"prometheus.io/port": "8010"}), {}, "http://10.0.0.1:8010/metrics"),
        (pod("10.0.0.1", notes={"prometheus.io/path": "/engine/metrics"}), {}, "http://10.0.0.1:8000/engine/metrics"),
        (pod("10.0.0.1", notes={"prometheus.io/scheme": "https"}), {}, "https://10.0.0.1:8000/metrics"),
        (pod("10.0.0.1", notes={"prometheus.io/scheme": "file"}), {}, "http://10.0.0.1:8000/metrics"),
        (pod("10.0.0.1", podIP="fd00::1"), {}, "http://[fd00::1]:8000/metrics"),
    ],
)
def test_a_pods_address(kubernetes: KubernetesPlace, made: dict[str, object], settings: dict[str, object], url: str) -> None:
    assert one(kubernetes, made, **settings).url == url


@pytest.mark.parametrize(
    "made",
    [
        pod("10.0.0.1", podIP=None),
        pod("10.0.0.1", phase="Pending"),
        pod("10.0.0.1", phase="Succeeded"),
        pod("10.0.0.1", notes={"prometheus.io/scrape": "false"}),
        pod("10.0.0.1", notes={"prometheus.io/port": "no-such-port"}),
    ],
)
def test_a_pod_that_cannot_be_asked_is_no_target(kubernetes: KubernetesPlace, made: dict[str, object]) -> None:
    kubernetes.pods = [made]
    assert kubernetes.source.targets() == []


@pytest.mark.parametrize(
    ("gpus", "labels", "gpu", "count", "unknown"),
    [
        ({"nvidia.com/gpu": "8"}, {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, "H100-80GB", 8, ""),
        ({"amd.com/gpu": "2"}, {"amd.com/gpu.product-name": "MI300X"}, "MI300X", 2, ""),
        ({"nvidia.com/gpu": "1"}, {}, "", 1, "do not name its GPU"),
        ({}, {"nvidia.com/gpu.product": "Tesla-T4"}, "T4", 0, "requests no GPU"),
        ({"nvidia.com/mig-1g.5gb": "1"}, {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"}, "", 0, "slice"),
        ({"nvidia.com/gpu": "1"}, {"nvidia.com/gpu.product": "Tesla-T4-SHARED"}, "", 0, "time-shared"),
        ({"nvidia.com/gpu": "1"}, {"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.replicas": "4"}, "", 0, "time-shared"),
    ],
)
def test_the_gpus_of_a_pod_are_known_or_it_is_said_why_not(
    kubernetes: KubernetesPlace, gpus: dict[str, str], labels: dict[str, str], gpu: str, count: int, unknown: str
) -> None:
    found = one(kubernetes, pod("10.0.0.1", gpus=gpus), labels)
    assert (found.gpu, found.count) == (gpu, count)
    assert unknown in found.unknown
    assert bool(unknown) == bool(found.unknown)
    assert found.since == datetime(2026, 11, 30, 10, tzinfo=UTC)


def test_without_the_right_to_read_nodes_the_gpu_is_unknown_and_the_pod_still_found(kubernetes: KubernetesPlace) -> None:
    kubernetes.forbidden = {"node-10.0.0.1"}
    found = one(kubernetes, pod("10.0.0.1"))
    assert (found.gpu, found.count, "read nodes" in found.unknown) == ("", 1, True)


def test_a_wrong_selector_or_namespace_is_bad_input(kubernetes: KubernetesPlace) -> None:
    with pytest.raises(BadInput, match="404"):
        KubernetesTargets(kubernetes.settings(namespaces=("elsewhere",))).targets()


@pytest.mark.parametrize(
    ("product", "gpu"),
    [
        ("NVIDIA-A10G", "A10G"),
        ("NVIDIA-L40S", "L40S"),
        ("NVIDIA-L4", "L4"),
        ("NVIDIA-H200", "H200"),
        ("NVIDIA-B200", "B200"),
        ("Tesla-T4", "T4"),
        ("Tesla-V100-SXM2-16GB", "V100"),
        ("NVIDIA-A100-SXM4-40GB", "A100-40GB"),
        ("NVIDIA-A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA-A100-80GB-PCIe", "A100-80GB"),
        ("NVIDIA-H100-80GB-HBM3", "H100-80GB"),
        ("NVIDIA-H100-PCIe", "H100-80GB"),
        ("NVIDIA-RTX-A6000", "NVIDIA-RTX-A6000"),
    ],
)
def test_products_of_node_labels_are_named_as_in_the_rate_card(product: str, gpu: str) -> None:
    assert gpu_type(product) == gpu


KUBECONFIG = """
current-context: here
contexts: [{{name: here, context: {{cluster: c, user: u, namespace: ml}}}}]
clusters: [{{name: c, cluster: {{server: "{server}"}}}}]
users: [{{name: u, user: {user}}}]
"""


def test_a_kubeconfig_with_a_token(kubernetes: KubernetesPlace, tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(KUBECONFIG.format(server=kubernetes.url, user="{token: secret-1}"))
    access = from_kubeconfig(file)
    assert (access.namespace, "secret-1" in repr(access)) == ("ml", False)
    kubernetes.name(["10.0.0.1"])
    assert len(KubernetesTargets(kubernetes.settings(access=access)).targets()) == 1


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("[]", "kubeconfig"),
        ("current-context: none", "contexts"),
        (KUBECONFIG.format(server="http://k", user="{exec: {command: login}}"), "users"),
        (KUBECONFIG.format(server="http://k", user="{token: a}").replace("name: c,", "name: d,"), "clusters"),
        (KUBECONFIG.format(server="https://k", user="{client-certificate: no.pem, client-key: no.key}"), "client-certificate"),
    ],
)
def test_a_kubeconfig_that_lacks_something_is_named(tmp_path: Path, text: str, field: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(BadInput) as caught:
        from_kubeconfig(tmp_path / "config")
    assert caught.value.field == field


def test_outside_a_pod_there_is_no_service_account(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no pod"):
        in_cluster("", "", tmp_path)
