"""Settings blocks ``[[prometheus]]`` and ``[[discovery]]``: where engines are read and found besides ``[[targets]]``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from core.errors import BadInput

_SPAN = re.compile(r"(\d{1,5})([mhd])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


def span(text: str, field: str) -> timedelta:
    """``60d``, ``12h`` or ``30m``. Raises BadInput."""
    match = _SPAN.fullmatch(text)
    if match is None:
        raise BadInput("is not a span", field=field, value=text, hint="write 60d, 12h or 30m")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


class PrometheusSetting(BaseModel):
    """One Prometheus-compatible server: how to reach it, and which engines to read from it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    url: str
    read: bool = True
    match: str = ""
    token: SecretStr | None = None
    token_file: Path | None = None
    username: str = ""
    password: SecretStr | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    headers: Mapping[str, SecretStr] = {}
    params: Mapping[str, str] = {}
    cluster: str = "default"
    namespace: str = "default"
    node: str = ""
    gpu: str = ""
    count: Annotated[int, Field(ge=0)] = 0
    cluster_label: str = "cluster"
    namespace_label: str = "namespace"
    node_label: str = "node"
    replica_labels: tuple[str, ...] = ("prometheus_replica", "replica", "__replica__")
    interval_s: Annotated[float, Field(ge=0)] = 0.0
    poll_s: Annotated[float, Field(gt=0)] = 15.0
    lag_s: Annotated[float, Field(ge=0)] = 15.0
    overlap_s: Annotated[float, Field(ge=0)] = 120.0
    window_s: Annotated[float, Field(gt=0)] = 300.0
    since: str = "1h"

    @field_validator("since")
    @classmethod
    def _span(cls, value: str) -> str:
        try:
            span(value, "since")
        except BadInput as error:
            raise ValueError(f"{error.message}: {error.hint}") from error
        return value


class DiscoverySetting(BaseModel):
    """One place where engines to scrape are found. What a target's own labels do not say, the block says for all of them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    kind: Literal["file", "dns", "prometheus", "kubernetes"]
    refresh_s: Annotated[float, Field(gt=0)] = 30.0
    gpu: str = ""
    count: Annotated[int, Field(ge=0)] = 0
    node: str = ""
    cluster: str = "default"
    namespace: str = "default"
    model_id: str = ""
    files: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    type: Literal["A", "AAAA", "SRV"] = "A"
    servers: tuple[str, ...] = ()
    server_port: Annotated[int, Field(ge=1, le=65535)] = 53
    port: str = ""
    path: str = "/metrics"
    scheme: Literal["http", "https"] = "http"
    prometheus: str = ""
    labels: Mapping[str, str] = {}
    kubeconfig: Path | None = None
    context: str = ""
    selector: str = ""
    namespaces: tuple[str, ...] = ()
    model_label: str = ""
