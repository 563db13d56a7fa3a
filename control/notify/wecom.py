"""A WeCom (WeChat Work) group robot: text of at most 2,048 bytes to an address whose key is the secret; it has no signature.

Published: developer.work.weixin.qq.com/document/path/91770 (errcode 0; 45009 too often; 93000 bad key; 40058 too long).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from control.notify.http_call import Caller
from control.notify.robot import cut, post
from core.message import Language, message_of
from core.ports import Delivery, Effect

BUSY = frozenset({-1, 45009})
MAX_TEXT = 2048


@dataclass(frozen=True, slots=True)
class WeComEffector:
    """``url`` reads the robot's address."""

    url: Callable[[], str]
    language: Language
    caller: Caller

    def deliver(self, effect: Effect) -> Delivery:
        text = cut(message_of(effect.key, effect.payload, self.language).text, MAX_TEXT)
        return post(self.caller, self.url, lambda: {"msgtype": "text", "text": {"content": text}}, "errcode", BUSY, "WeCom")
