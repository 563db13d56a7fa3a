"""Where a webhook may go: public addresses only, unless private ones are allowed by setting (guards against SSRF).

The name is resolved once and the connection goes to that very address, so a name cannot point elsewhere a moment later.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from core.errors import BadInput, Unavailable

Resolver = Callable[[str, int], list[str]]
NAT64 = ipaddress.ip_network("64:ff9b::/96")


@dataclass(frozen=True, slots=True)
class Destination:
    """A checked target: connect to ``address``:``port``, speak to ``host``."""

    scheme: str
    host: str
    address: str
    port: int
    path: str


def resolve(host: str, port: int) -> list[str]:
    """All addresses of a name. Raises Unavailable when it does not resolve."""
    try:
        return sorted({str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)})
    except (OSError, UnicodeError) as error:
        raise Unavailable(f"the webhook's host {host!r} does not resolve") from error


def check_destination(url: str, *, allow_private: bool, resolver: Resolver = resolve) -> Destination:
    """Check a webhook's URL and where it leads. Raises BadInput naming the fault, never the URL's path, query or credentials."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise BadInput("not a URL", field="webhook.url") from error
    if not host or parts.scheme not in ("https", "http") or parts.username is not None:
        raise BadInput("must be https://HOST/PATH without credentials", field="webhook.url")
    if parts.scheme == "http" and not allow_private:
        raise BadInput("must be https", field="webhook.url", hint="plain http is for private targets, if allowed by setting")
    port = port or (443 if parts.scheme == "https" else 80)
    addresses = resolver(host, port)
    if not allow_private and not all(is_public(address) for address in addresses):
        raise BadInput(f"host {host!r} leads to an address that is not public", field="webhook.url")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Destination(parts.scheme, host, addresses[0], port, path)


def is_public(address: str) -> bool:
    """Whether an address is globally routable; an IPv4 address wrapped in IPv6 is judged as itself."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            ip = ip.ipv4_mapped
        elif ip.sixtofour is not None:
            ip = ip.sixtofour
        elif ip in NAT64:
            ip = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.is_global and not ip.is_multicast
