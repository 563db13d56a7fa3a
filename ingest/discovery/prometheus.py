"""Targets that a Prometheus scrapes, to be scraped by us: ``/api/v1/targets``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core.errors import BadInput
from core.ports import FoundTarget
from ingest.discovery.labels import TargetDefaults, target_of
from ingest.prometheus.api import PrometheusApi
from ingest.prometheus.settings import Access


class PrometheusTargets:
    """A TargetSource of the active targets whose labels equal ``match`` (``{"job": "vllm"}``).

    Labels ``gpu``, ``count``, ``node``, ``cluster``, ``namespace`` and ``model_id`` say what is behind a target.
    """

    def __init__(self, access: Access, match: Mapping[str, str], defaults: TargetDefaults) -> None:
        self._api, self._match, self._defaults, self._url = PrometheusApi(access), dict(match), defaults, access.url

    def targets(self) -> Sequence[FoundTarget]:
        return [self._target(row) for row in self._api.targets() if self._is_ours(row)]

    def _is_ours(self, row: Mapping[str, Any]) -> bool:
        labels = row.get("labels") or {}
        return all(labels.get(name) == value for name, value in self._match.items())

    def _target(self, row: Mapping[str, Any]) -> FoundTarget:
        address = row.get("scrapeUrl")
        if not isinstance(address, str):
            raise BadInput("target has no scrapeUrl", where=f"{self._url}/api/v1/targets", field="scrapeUrl", value=address)
        labels = {str(name): str(value) for name, value in (row.get("labels") or {}).items()}
        return target_of(address, labels, self._defaults, f"{self._url}/api/v1/targets")
