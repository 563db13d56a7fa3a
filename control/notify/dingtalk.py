"""A DingTalk custom robot: text, signed in the address: Base64(HMAC-SHA256(key = secret, "<milliseconds>\\n<secret>")).

Published: open.dingtalk.com/document/robots/customize-robot-security-settings (errcode 0; 310000 bad signature;
130101 too often).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from control.notify.http_call import Caller
from control.notify.robot import cut, post
from core.message import Language, message_of
from core.ports import Delivery, Effect

BUSY = frozenset({-1, 130101})
MAX_TEXT = 18_000


@dataclass(frozen=True, slots=True)
class DingTalkEffector:
    """``url`` and ``secret`` read the robot's address (with its access token) and signing key."""

    url: Callable[[], str]
    secret: Callable[[], str]
    language: Language
    caller: Caller
    now: Callable[[], datetime]

    def deliver(self, effect: Effect) -> Delivery:
        text = cut(message_of(effect.key, effect.payload, self.language).text, MAX_TEXT)
        body = {"msgtype": "text", "text": {"content": text}}
        return post(self.caller, self._signed_url, lambda: body, "errcode", BUSY, "DingTalk")

    def _signed_url(self) -> str:
        at_ms = str(int(self.now().timestamp() * 1000))
        url = self.url()
        return f"{url}{'&' if '?' in url else '?'}{urlencode({'timestamp': at_ms, 'sign': sign(at_ms, self.secret())})}"


def sign(at_ms: str, secret: str) -> str:
    return base64.b64encode(hmac.new(secret.encode(), f"{at_ms}\n{secret}".encode(), hashlib.sha256).digest()).decode()
