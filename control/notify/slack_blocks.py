"""A message as Slack's Block Kit: header (150 characters), sections (text 3,000, ten fields of 2,000 characters).

Published: docs.slack.dev/reference/block-kit
"""

from __future__ import annotations

from typing import Any

from core.message import Message


def escaped(text: str) -> str:
    """Slack's three control characters, so that what people wrote mentions nobody and links nowhere."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def blocks(message: Message) -> list[dict[str, Any]]:
    header = {"type": "header", "text": {"type": "plain_text", "text": message.title[:150], "emoji": False}}
    summary = {"type": "section", "text": _text(message.summary, 3000)}
    fields = [_text(f"{label}: {value}", 2000) for label, value in message.facts]
    sections = [{"type": "section", "fields": fields[n : n + 10]} for n in range(0, len(fields), 10)]
    return [header, summary, *sections]


def _text(text: str, most: int) -> dict[str, Any]:
    return {"type": "plain_text", "text": text[:most] or " ", "emoji": False}


def fallback(message: Message) -> str:
    """What notifications show."""
    return escaped(f"{message.title}: {message.summary}")[:3000]
