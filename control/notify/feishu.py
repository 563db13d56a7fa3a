"""A Feishu (Lark) custom robot: a card, signed in the body: Base64(HMAC-SHA256(key = "<seconds>\\n<secret>", nothing)).

Published: open.feishu.cn/document/client-docs/bot-v3/add-custom-bot (code 0; 19021 bad signature; 11232 too often; 20 KB).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from control.notify.http_call import Caller
from control.notify.robot import cut, post
from core.message import Language, Message, message_of
from core.ports import Delivery, Effect

BUSY = frozenset({11232, 11233, 9499})
COLOURS = {"page": "red", "warning": "orange", "notice": "blue"}
MAX_TEXT = 12_000


@dataclass(frozen=True, slots=True)
class FeishuEffector:
    """``url`` and ``secret`` read the robot's address and signing key."""

    url: Callable[[], str]
    secret: Callable[[], str]
    language: Language
    caller: Caller
    now: Callable[[], datetime]

    def deliver(self, effect: Effect) -> Delivery:
        message = message_of(effect.key, effect.payload, self.language)
        return post(self.caller, self.url, lambda: self._body(message), "code", BUSY, "Feishu")

    def _body(self, message: Message) -> Any:
        at_s = str(int(self.now().timestamp()))
        colour = "green" if message.is_over else COLOURS[message.severity]
        title = {"tag": "plain_text", "content": message.title}
        lines = cut(message.text.partition("\n")[2], MAX_TEXT)
        card = {
            "header": {"title": title, "template": colour},
            "elements": [{"tag": "div", "text": {"tag": "plain_text", "content": lines}}],
        }
        return {"timestamp": at_s, "sign": sign(at_s, self.secret()), "msg_type": "interactive", "card": card}


def sign(at_s: str, secret: str) -> str:
    return base64.b64encode(hmac.new(f"{at_s}\n{secret}".encode(), b"", hashlib.sha256).digest()).decode()
