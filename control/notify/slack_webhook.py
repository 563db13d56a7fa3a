"""A Slack incoming webhook: POST of text and blocks to a secret URL. It cannot be asked, so it is at least once.

Published: docs.slack.dev/messaging/sending-messages-using-incoming-webhooks (200 ``ok``; 400, 403, 404, 410 for good; 429).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from control.notify.http_call import Caller, attempt, judged
from control.notify.slack_blocks import blocks, fallback
from core.message import Language, message_of
from core.ports import Delivery, Effect

WHAT = "Slack"


@dataclass(frozen=True, slots=True)
class SlackWebhookEffector:
    """``url`` reads the webhook's address, which is the secret."""

    url: Callable[[], str]
    language: Language
    caller: Caller

    def deliver(self, effect: Effect) -> Delivery:
        message = message_of(effect.key, effect.payload, self.language)
        body = {"text": fallback(message), "blocks": blocks(message)}
        return attempt(lambda: judged(self.caller.json("POST", self.url(), {}, body), WHAT), WHAT)
