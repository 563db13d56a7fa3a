"""What the API process is told at its start; cli/ fills it, nothing here reads the environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Literal

from core.breaker_values import BreakerPolicy
from core.policy import SigningKey
from core.vendor_book import SOURCES
from core.windows import zone

GuardKeys = Mapping[str, Sequence[SigningKey]]
"""Guard name -> its signing keys, newest first; two are valid at a time while a key is rotated."""


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """``zone`` and ``currency`` are the organisation's reporting zone (IANA) and currency (ISO 4217).

    ``organisation``, ``default_cluster`` and ``default_namespace`` fill what a gateway's callback does not say.
    ``node_tags``: cloud tags whose value is a node's name.
    ``guard_keys_file`` (``guards.json`` of the data folder) is read again when it changes and wins over ``guard_keys``.
    """

    data_dir: Path
    bind_host: str = "127.0.0.1"
    bind_port: int = 8700
    zone: str = "UTC"
    currency: str = "USD"
    organisation: str = "default"
    default_cluster: str = "default"
    default_namespace: str = "default"
    node_tags: tuple[str, ...] = ()
    max_body_mb: int = 16
    max_unpacked_mb: int = 64
    max_records: int = 20_000
    max_ingest_in_flight: int = 8
    failed_auth_per_minute: int = 30
    token_cache_s: float = 5.0
    metrics_cache_s: float = 5.0
    standings_cache_s: float = 2.0
    vendor_price_order: tuple[str, ...] = SOURCES
    breaker_policy: BreakerPolicy = field(default_factory=BreakerPolicy)
    dedupe_horizon: timedelta = timedelta(days=7)
    guard_keys: GuardKeys = field(default_factory=dict)
    guard_keys_file: Path | None = None
    policy_on_expiry: Literal["open", "closed"] = "open"
    tls_cert: Path | None = None
    tls_key: Path | None = None

    def __post_init__(self) -> None:
        zone(self.zone)
        for name in ("max_body_mb", "max_unpacked_mb", "max_records", "max_ingest_in_flight", "failed_auth_per_minute"):
            if getattr(self, name) <= 0:
                raise ValueError(f"ApiSettings.{name} must be positive")
        if not 0 <= self.token_cache_s <= 5:
            raise ValueError("ApiSettings.token_cache_s must be 0 to 5: a revoked token may live no longer")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("ApiSettings.tls_cert and tls_key go together")
