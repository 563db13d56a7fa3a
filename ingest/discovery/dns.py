"""Targets behind a DNS name: A and AAAA records with a port, or SRV records, which bring their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import dns.exception
import dns.rdatatype
import dns.resolver

from core.errors import Unavailable
from core.ports import FoundTarget
from ingest.discovery.labels import TargetDefaults, target_of

RecordType = Literal["A", "AAAA", "SRV"]


@dataclass(frozen=True, slots=True)
class DnsSettings:
    """``port`` is for A and AAAA. ``servers`` replaces the system's resolvers; ``timeout_s`` bounds one name."""

    names: tuple[str, ...]
    type: RecordType = "A"
    port: int = 8000
    path: str = "/metrics"
    scheme: str = "http"
    servers: tuple[str, ...] = ()
    server_port: int = 53
    timeout_s: float = 5.0
    defaults: TargetDefaults = field(default_factory=TargetDefaults)


class DnsTargets:
    """A TargetSource. A name without records has no targets (a headless service of no pods); a failing server is Unavailable."""

    def __init__(self, settings: DnsSettings) -> None:
        self._settings = settings
        self._resolver = dns.resolver.Resolver(configure=not settings.servers)
        if settings.servers:
            self._resolver.nameservers = list(settings.servers)
            self._resolver.port = settings.server_port
        self._resolver.lifetime = settings.timeout_s

    def targets(self) -> Sequence[FoundTarget]:
        labels = {"__metrics_path__": self._settings.path, "__scheme__": self._settings.scheme}
        return [
            target_of(address, labels, self._settings.defaults, name)
            for name in self._settings.names
            for address in self._addresses(name)
        ]

    def _addresses(self, name: str) -> list[str]:
        kind, port = self._settings.type, self._settings.port
        try:
            answer = self._resolver.resolve(name, dns.rdatatype.from_text(kind), search=True)
        except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
            return []
        except (dns.exception.DNSException, OSError) as error:
            raise Unavailable(f"{name} cannot be looked up: {error}", hint="is the DNS server up?") from error
        if kind == "SRV":
            return sorted({f"{record.target.to_text(omit_final_dot=True)}:{record.port}" for record in answer})
        return sorted({f"[{record.address}]:{port}" if kind == "AAAA" else f"{record.address}:{port}" for record in answer})
