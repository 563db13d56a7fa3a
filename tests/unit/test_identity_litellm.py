"""LiteLLM's names over its admin API: a local server that answers, page by page, as LiteLLM 1.95.1 does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from core.errors import BadInput, Unavailable
from core.identity_state import Alias
from ingest.identity.litellm import read_api

MASTER = "sk-master"
KEYS = [
    {"token": "hash-1", "key_name": "sk-...1a", "key_alias": "search-prod", "user_id": "ann", "team_id": "t-1",
     "organization_id": "o-1"},
    {"token": "hash-2", "key_name": "sk-...2b", "key_alias": None, "user_id": None, "team_id": None, "organization_id": None},
    {"token": "hash-3", "key_name": "sk-...3c", "key_alias": "ui", "user_id": "ann", "team_id": "litellm-dashboard"},
    {"token": "hash-4", "key_name": "sk-...4d", "key_alias": '"; DROP', "user_id": "bob", "team_id": "t-1"},
]  # fmt: skip
TEAMS = [{"team_id": "t-1", "team_alias": "搜索", "organization_id": "o-1", "members_with_roles": []}]
USERS = [
    {"user_id": "ann", "user_alias": None, "user_email": "ann@acme.com", "teams": ["t-1"], "key_count": 2},
    {"user_id": "bob", "user_alias": "Bob", "user_email": "bob@acme.com", "teams": [], "key_count": 0},
]


class Proxy(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.broken: dict[str, tuple[int, bytes]] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Proxy

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        params = dict(parse_qsl(asked.query))
        self.server.asked.append((asked.path, params))
        if asked.path in self.server.broken:
            return self._answer(*self.server.broken[asked.path])
        if self.headers["Authorization"] != f"Bearer {MASTER}":
            return self._answer(401, b'{"error":{"message":"Authentication Error","code":"401"}}')
        page = int(params.get("page", 1))
        body: Any = TEAMS
        if asked.path == "/key/list":
            size = int(params["size"])
            body = {"keys": KEYS[(page - 1) * size : page * size], "total_count": len(KEYS), "current_page": page}
            body["total_pages"] = -(-len(KEYS) // size)
            if params.get("return_full_object") != "true":
                body["keys"] = [key["token"] for key in body["keys"]]
        elif asked.path == "/user/list":
            size = int(params["page_size"])
            body = {"users": USERS[(page - 1) * size : page * size], "total": len(USERS), "page": page, "page_size": size}
            body["total_pages"] = -(-len(USERS) // size)
        return self._answer(200, json.dumps(body).encode())

    def _answer(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    server = Proxy()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join(5)


def test_every_page_is_read_and_everything_has_a_name(proxy: Proxy) -> None:
    found = read_api(proxy.url, MASTER, page_rows=2)
    assert found == [
        Alias("key", "hash-1", "search-prod", "t-1", "ann", "o-1"),
        Alias("key", "hash-2", "sk-...2b"),
        Alias("key", "hash-4", "sk-...4d", "t-1", "bob"),
        Alias("team", "t-1", "搜索", "", "", "o-1"),
        Alias("user", "ann", "ann@acme.com"),
        Alias("user", "bob", "Bob"),
    ]
    assert proxy.asked == [
        ("/key/list", {"size": "2", "return_full_object": "true", "page": "1"}),
        ("/key/list", {"size": "2", "return_full_object": "true", "page": "2"}),
        ("/team/list", {}),
        ("/user/list", {"page_size": "2", "page": "1"}),
    ]


def test_a_key_that_may_not_read_is_named(proxy: Proxy) -> None:
    with pytest.raises(BadInput) as caught:
        read_api(proxy.url, "sk-other")
    assert caught.value.field == "litellm_key"
    assert "sk-other" not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "status", "body", "says"),
    [
        ("/key/list", 500, b'{"error":"no database"}', "answered 500"),
        ("/key/list", 200, b"<html>", "not a LiteLLM proxy"),
        ("/key/list", 200, b'["hash-1"]', "not a LiteLLM proxy"),
        ("/key/list", 200, b'{"keys":["hash-1"],"total_pages":1}', "not a LiteLLM proxy"),
        ("/team/list", 200, b'{"teams":[]}', "not a LiteLLM proxy"),
        ("/user/list", 200, b'{"users":null}', "not a LiteLLM proxy"),
    ],
)
def test_an_answer_that_is_not_litellms_is_not_taken(proxy: Proxy, path: str, status: int, body: bytes, says: str) -> None:
    proxy.broken[path] = (status, body)
    with pytest.raises(Unavailable, match=says):
        read_api(proxy.url, MASTER)


def test_a_proxy_that_is_away_or_no_url_is_said() -> None:
    with pytest.raises(Unavailable, match="cannot be reached"):
        read_api("http://127.0.0.1:1", MASTER)
    with pytest.raises(BadInput, match="litellm_url"):
        read_api("localhost", MASTER)
