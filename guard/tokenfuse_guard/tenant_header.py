"""A tenant vouched for by the gateway: ``x-tokenfuse-tenant: v1;t=UNIX;tier=P1;path=ORG/TEAM;sig=HEX`` under a shared key.

The engine's guard obeys tenant scopes only for requests that carry one: anybody can write a plain header.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import NamedTuple
from urllib.parse import quote, unquote

from tokenfuse_guard.settings import Keys

HEADER = "x-tokenfuse-tenant"
GOOD_FOR_S = 300


class Vouched(NamedTuple):
    tenant: str
    service_tier: str


def sign_tenant(tenant: str, service_tier: str, key: bytes, now_s: float) -> str:
    """The header's value, good for five minutes."""
    signed = f"v1;t={int(now_s)};tier={service_tier};path={quote(tenant)}"
    return f"{signed};sig={hmac.new(key, signed.encode(), hashlib.sha256).hexdigest()}"


def read_tenant(value: str, keys: Keys, now_s: float) -> Vouched | None:
    """Who the gateway says this is, None when the header is forged, stale or broken."""
    signed, found, signature = value.rpartition(";sig=")
    fields = dict(part.partition("=")[::2] for part in signed.split(";")[1:])
    good = False
    for _, key in keys:
        expected = hmac.new(key, signed.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
        good |= hmac.compare_digest(signature.encode("utf-8", "surrogatepass"), expected.encode())
    when = fields.get("t", "")
    if not (found and good and signed.startswith("v1;") and when.isdigit() and abs(now_s - int(when)) <= GOOD_FOR_S):
        return None
    return Vouched(unquote(fields.get("path", "")), fields.get("tier", ""))
