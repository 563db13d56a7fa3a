"""A message as Jira takes it: Atlassian Document Format for Cloud, wiki markup for Data Center.

ADF: developer.atlassian.com/cloud/jira/platform/apis/document/structure (doc, paragraph, bulletList, listItem, text with marks).
"""

from __future__ import annotations

import re
from typing import Any

from core.message import Message

MAX_TEXT = 30_000
"""Jira's limit for a description or comment is 32,767 characters."""
_WIKI = re.compile(r"([{}\[\]|!*_^~+\\])")


def reference(message: Message) -> str:
    """The line by which a comment that was sent already is known."""
    return f"ref {message.thread}/{message.seq}"


def adf(message: Message) -> dict[str, Any]:
    """The document of a message."""
    items = [
        {"type": "listItem", "content": [_paragraph(_text(f"{label}: ", strong=True), _text(value))]}
        for label, value in message.facts
    ]
    content = [
        _paragraph(_text(message.summary)),
        {"type": "bulletList", "content": items},
        _paragraph(_text(reference(message))),
    ]
    return {"type": "doc", "version": 1, "content": content}


def _paragraph(*content: dict[str, Any]) -> dict[str, Any]:
    return {"type": "paragraph", "content": list(content)}


def _text(text: str, *, strong: bool = False) -> dict[str, Any]:
    """A text node; ADF takes no empty one."""
    node: dict[str, Any] = {"type": "text", "text": text[: MAX_TEXT // 10] or " "}
    return {**node, "marks": [{"type": "strong"}]} if strong else node


def wiki(message: Message) -> str:
    """The message in wiki markup; what people wrote is escaped."""
    lines = [_plain(message.summary), "", *(f"* *{label}:* {_plain(value)}" for label, value in message.facts)]
    return "\n".join([*lines, "", reference(message)])[:MAX_TEXT]


def _plain(text: str) -> str:
    return _WIKI.sub(r"\\\1", text).replace("\n", " ")
