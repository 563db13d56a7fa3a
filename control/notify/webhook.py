"""A generic signed webhook: POST of canonical JSON with an idempotency key and an HMAC-SHA256 signature.

The receiver checks ``x-tokenfuse-signature: t=<unix seconds>,v1=<hex HMAC-SHA256(secret, "<t>.<body>")>`` and drops an
``idempotency-key`` it has seen: delivery is at least once, always with the same key.
"""

from __future__ import annotations

import hashlib
import hmac
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

import httpx

from control.notify.addresses import Destination, Resolver, check_destination, resolve
from core.errors import BadInput, TokenfuseError
from core.policy import canonical_json
from core.ports import Delivery, Effect

RETRY_STATUSES = frozenset({408, 409, 425, 429})
MAX_RETRY_AFTER_S = 3600


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """``allow_private`` permits private, loopback and link-local targets and plain http; the secret never appears in a text."""

    url: str = field(repr=False)
    secret: bytes = field(repr=False)
    allow_private: bool = False
    timeout_s: float = 5.0

    def __post_init__(self) -> None:
        if len(self.secret) < 16:
            raise BadInput("needs at least 16 bytes", field="webhook.secret", hint="make one with 32 random bytes")


class WebhookEffector:
    """Delivers effects to one URL; follows no redirect."""

    def __init__(self, settings: WebhookSettings, now: Callable[[], datetime], resolver: Resolver = resolve) -> None:
        self._settings, self._now, self._resolver = settings, now, resolver

    def deliver(self, effect: Effect) -> Delivery:
        """2xx is delivered; 408, 409, 425, 429, 5xx and network trouble are tried again; anything else has failed."""
        try:
            target = check_destination(self._settings.url, allow_private=self._settings.allow_private, resolver=self._resolver)
            response = self._post(target, effect)
        except BadInput as error:
            return Delivery("failed", str(error))
        except TokenfuseError as error:
            return Delivery("retry", error.message)
        except (httpx.HTTPError, ssl.SSLError, OSError) as error:
            return Delivery("retry", f"no answer from the webhook ({type(error).__name__})")
        return _judged(response)

    def _post(self, target: Destination, effect: Effect) -> httpx.Response:
        body = canonical_json({"key": effect.key, "kind": effect.kind, **effect.payload})
        address = f"[{target.address}]" if ":" in target.address else target.address
        headers = {
            "host": target.host if target.port in (80, 443) else f"{target.host}:{target.port}",
            "content-type": "application/json",
            "idempotency-key": effect.key,
            "x-tokenfuse-signature": signature(self._settings.secret, int(self._now().timestamp()), body),
        }
        with httpx.Client(timeout=self._settings.timeout_s, follow_redirects=False, trust_env=False) as client:
            request = client.build_request(
                "POST",
                f"{target.scheme}://{address}:{target.port}{target.path}",
                content=body.encode(),
                headers=headers,
                extensions={"sni_hostname": target.host},
            )
            with_body = client.send(request, stream=True)
            with_body.close()
            return with_body


def signature(secret: bytes, at_s: int, body: str) -> str:
    """The signature header's value for a body sent at a unix second."""
    return f"t={at_s},v1={hmac.new(secret, f'{at_s}.{body}'.encode(), hashlib.sha256).hexdigest()}"


def _judged(response: httpx.Response) -> Delivery:
    status = response.status_code
    if 200 <= status < 300:
        return Delivery("delivered", f"HTTP {status}")
    if status in RETRY_STATUSES or status >= 500:
        after = response.headers.get("retry-after", "")
        return Delivery("retry", f"HTTP {status}", min(int(after), MAX_RETRY_AFTER_S) if after.isdecimal() else 0)
    return Delivery("failed", f"HTTP {status}: the webhook does not take it")
