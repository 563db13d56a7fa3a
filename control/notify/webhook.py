"""A generic signed webhook: POST of canonical JSON with an idempotency key and an HMAC-SHA256 signature.

The receiver checks ``x-tokenfuse-signature: t=<unix seconds>,v1=<hex HMAC-SHA256(secret, "<t>.<body>")>`` and drops an
``idempotency-key`` it has seen: delivery is at least once, always with the same key.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from control.notify.addresses import Resolver, resolve
from control.notify.http_call import Answer, Caller, attempt, judged
from core.errors import BadInput
from core.policy import canonical_json
from core.ports import Delivery, Effect


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
        self._settings, self._now = settings, now
        self._caller = Caller(settings.allow_private, settings.timeout_s, resolver)

    def deliver(self, effect: Effect) -> Delivery:
        """2xx is delivered; 408, 409, 425, 429, 5xx and network trouble are tried again; anything else has failed."""
        return attempt(lambda: judged(self._post(effect), "the webhook"), "the webhook")

    def _post(self, effect: Effect) -> Answer:
        body = canonical_json({"key": effect.key, "kind": effect.kind, **effect.payload})
        headers = {
            "content-type": "application/json",
            "idempotency-key": effect.key,
            "x-tokenfuse-signature": signature(self._settings.secret, int(self._now().timestamp()), body),
        }
        return self._caller.call("POST", self._settings.url, headers, body.encode())


def signature(secret: bytes, at_s: int, body: str) -> str:
    """The signature header's value for a body sent at a unix second."""
    return f"t={at_s},v1={hmac.new(secret, f'{at_s}.{body}'.encode(), hashlib.sha256).hexdigest()}"
