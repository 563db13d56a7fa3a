"""Start arguments of engines that run as pods, from the pods' own specification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core.errors import BadInput, Refused, Unavailable
from ingest.discovery.kubernetes import KubernetesTargets
from ingest.fleet.arguments import StartArguments, start_arguments

GPU_WORDS = ("/gpu", "/mig-")


def pod_arguments(source: KubernetesTargets) -> tuple[dict[str, StartArguments], str]:
    """(arguments by pod address, why none could be read)."""
    try:
        pods = source.pods()
    except (Unavailable, Refused, BadInput) as error:
        return {}, str(error)
    found: dict[str, StartArguments] = {}
    for pod in pods:
        status = pod.get("status") or {}
        address = status.get("podIP") if status.get("phase") == "Running" else None
        container = _engine_of((pod.get("spec") or {}).get("containers") or [])
        if address and container is not None:
            about = pod.get("metadata") or {}
            where = f"arguments of pod {about.get('namespace', '')}/{about.get('name', '')}"
            found[str(address)] = _arguments(container, where)
    return found, ""


def _engine_of(containers: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The container that runs the engine: the one with a GPU, else one that names vLLM, else the only one."""
    with_gpu = [one for one in containers if any(word in name for name in _resources(one) for word in GPU_WORDS)]
    named = [one for one in containers if "vllm" in " ".join([str(one.get("image", "")), *_words(one)])]
    for chosen in (with_gpu, named, containers):
        if len(chosen) == 1:
            return chosen[0]
    return named[0] if named else None


def _resources(container: Mapping[str, Any]) -> list[str]:
    given = container.get("resources") or {}
    return [*(given.get("limits") or {}), *(given.get("requests") or {})]


def _words(container: Mapping[str, Any]) -> list[str]:
    return [str(word) for part in ("command", "args") for word in container.get(part) or []]


def _arguments(container: Mapping[str, Any], where: str) -> StartArguments:
    """Arguments alone go to the image's own entry point: ``vllm serve`` or the API server's module."""
    environment = {str(row.get("name")): str(row["value"]) for row in container.get("env") or [] if "value" in row}
    command = [str(word) for word in container.get("command") or []]
    arguments = [str(word) for word in container.get("args") or []]
    if not command and "vllm" in str(container.get("image", "")):
        command = ["vllm"] if arguments[:1] == ["serve"] else ["vllm", "serve"]
    return start_arguments([*command, *arguments], where, environment)
