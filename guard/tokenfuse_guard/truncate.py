"""Cut a prompt to a limit, only where the operator opted in: the longest text loses its middle, its head and tail stay."""

from __future__ import annotations

from typing import Any

from tokenfuse_guard.prompt import bound

MARK = "\n[…]\n"


def truncate(data: dict[str, Any], most_tokens: int) -> bool:
    """Shorten the longest user text of ``data`` (changed in place) until the prompt's bytes fit. False when that cannot do it."""
    for _ in range(len(data.get("messages") or ()) + 1):
        size = bound(data, 0).tokens
        if size is None:
            return False
        if size <= most_tokens:
            return True
        texts = _texts(data)
        if not texts:
            return False
        holder, key = max(texts, key=lambda found: len(found[0][found[1]].encode("utf-8", "surrogatepass")))
        holder[key] = _cut(holder[key], size - most_tokens)
    size = bound(data, 0).tokens
    return size is not None and size <= most_tokens


def _texts(data: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    found: list[tuple[dict[str, Any], str]] = []
    for message in data.get("messages") or ():
        if not isinstance(message, dict) or message.get("role") == "system":
            continue
        content = message.get("content")
        if isinstance(content, str) and content:
            found.append((message, "content"))
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and isinstance(part.get("text"), str) and part["text"]:
                found.append((part, "text"))
    if isinstance(data.get("prompt"), str) and data["prompt"]:
        found.append((data, "prompt"))
    return found


def _cut(text: str, surplus_bytes: int) -> str:
    raw = text.encode("utf-8", "surrogatepass")
    keep = len(raw) - surplus_bytes - len(MARK.encode())
    if keep <= 0:
        return ""
    head, tail = raw[: keep // 2], raw[len(raw) - (keep - keep // 2) :]
    return head.decode("utf-8", "ignore") + MARK + tail.decode("utf-8", "ignore")
