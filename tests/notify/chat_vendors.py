"""Slack, the robots and Alertmanager as published: each refuses what the vendor refuses and keeps what it took."""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from vendor_server import Answered, Asked

BOT_TOKEN = "xoxb-5ecret-t0ken"
ROBOT_SECRET = "SEC-5ecret-t0ken"
PATH = "/hook/5ecret-t0ken"


@dataclass
class Kept:
    """What was taken, as texts."""

    taken: list[Any] = field(default_factory=list)


def _blocks_fit(blocks: Any) -> bool:
    for block in blocks:
        texts = [*block.get("fields", []), *([block["text"]] if "text" in block else [])]
        most = 150 if block["type"] == "header" else 2000 if "fields" in block else 3000
        if block["type"] not in ("header", "section") or not texts or len(block.get("fields", [])) > 10:
            return False
        if any(t["type"] not in ("plain_text", "mrkdwn") or not 0 < len(t["text"]) <= most for t in texts):
            return False
    return 0 < len(blocks) <= 50


class SlackHook(Kept):
    def answer(self, asked: Asked) -> Answered:
        if asked.path != PATH:
            return 404, "no_service"
        if not asked.json.get("text") or not _blocks_fit(asked.json["blocks"]):
            return 400, "invalid_blocks"
        self.taken.append(asked.json["text"])
        return 200, "ok"


class SlackApp(Kept):
    """Messages have a growing ``ts``; metadata comes back only when asked for."""

    def answer(self, asked: Asked) -> Answered:
        url = urlsplit(asked.path)
        if asked.headers.get("authorization") != f"Bearer {BOT_TOKEN}":
            return 200, {"ok": False, "error": "invalid_auth"}
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        body = asked.json if asked.body else query
        if body.get("channel") != "C024BE91L":
            return 200, {"ok": False, "error": "channel_not_found"}
        method = url.path.removeprefix("/api/")
        if asked.method == "POST" and not _blocks_fit(body["blocks"]):
            return 200, {"ok": False, "error": "invalid_blocks"}
        if method == "chat.postMessage":
            return self._post(body)
        if method == "chat.update":
            (one,) = [m for m in self.taken if m["ts"] == body["ts"]]
            one |= {name: body[name] for name in ("text", "blocks", "metadata")}
            return 200, {"ok": True, "ts": body["ts"]}
        return self._read(method, query)

    def _post(self, body: Any) -> Answered:
        ts = f"{1_796_040_000 + len(self.taken)}.000100"
        self.taken.append({**body, "ts": ts})
        return 200, {"ok": True, "ts": ts}

    def _read(self, method: str, query: dict[str, str]) -> Answered:
        if method == "conversations.history":
            found = [m for m in self.taken if "thread_ts" not in m and float(m["ts"]) >= float(query["oldest"])]
        elif method == "conversations.replies":
            found = [m for m in self.taken if query["ts"] in (m["ts"], m.get("thread_ts"))]
        else:
            return 200, {"ok": False, "error": "unknown_method"}
        whole = query.get("include_all_metadata") == "true"
        shown = [{k: v for k, v in m.items() if k != "metadata" or whole} for m in found]
        at = int(query.get("cursor", "0"))
        after = str(at + 1) if at + 1 < len(shown) else ""
        return 200, {"ok": True, "messages": shown[at : at + 1], "response_metadata": {"next_cursor": after}}


class Feishu(Kept):
    def answer(self, asked: Asked) -> Answered:
        body = asked.json
        key = f"{body['timestamp']}\n{ROBOT_SECRET}".encode()
        good = base64.b64encode(hmac.new(key, b"", hashlib.sha256).digest()).decode()
        if asked.path != PATH or body["sign"] != good:
            return 200, {"code": 19021, "msg": "sign match fail or timestamp is not within one hour from current time"}
        if body["msg_type"] != "interactive" or len(asked.body) > 20_000:
            return 200, {"code": 9499, "msg": "Bad Request"}
        self.taken.append(body["card"]["elements"][0]["text"]["content"])
        return 200, {"code": 0, "msg": "success", "data": {}}


class DingTalk(Kept):
    def answer(self, asked: Asked) -> Answered:
        query = {name: values[0] for name, values in parse_qs(urlsplit(asked.path).query).items()}
        signed = hmac.new(ROBOT_SECRET.encode(), f"{query['timestamp']}\n{ROBOT_SECRET}".encode(), hashlib.sha256).digest()
        if query["sign"] != base64.b64encode(signed).decode() or query["access_token"] != "5ecret-t0ken":
            return 200, {"errcode": 310000, "errmsg": "sign not match"}
        if asked.json["msgtype"] != "text" or len(asked.body) > 20_000:
            return 200, {"errcode": 400, "errmsg": "bad"}
        self.taken.append(asked.json["text"]["content"])
        return 200, {"errcode": 0, "errmsg": "ok"}


class WeCom(Kept):
    def answer(self, asked: Asked) -> Answered:
        if asked.path != PATH:
            return 200, {"errcode": 93000, "errmsg": "invalid webhook url"}
        content = asked.json["text"]["content"]
        if asked.json["msgtype"] != "text" or len(content.encode()) > 2048:
            return 200, {"errcode": 40058, "errmsg": "text.content exceed max length 2048"}
        self.taken.append(content)
        return 200, {"errcode": 0, "errmsg": "ok"}


class Alertmanager(Kept):
    """Keeps alerts by their labels, as Alertmanager does."""

    def __init__(self) -> None:
        super().__init__()
        self.alerts: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}

    def answer(self, asked: Asked) -> Answered:
        if asked.path != "/api/v2/alerts" or asked.headers["content-type"].split(";")[0] != "application/json":
            return 404, None
        for alert in asked.json:
            if not alert["labels"].get("alertname") or not all(isinstance(v, str) for v in alert["labels"].values()):
                return 400, "bad alert"
            self.alerts[tuple(sorted(alert["labels"].items()))] = alert
        self.taken.append([a["annotations"]["summary"] for a in asked.json])
        return 200, None
