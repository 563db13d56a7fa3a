"""Amazon's services over real HTTP: moto as a server, and a door in front of it that refuses, counts and interrupts."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

HOP = frozenset({"connection", "transfer-encoding", "content-length", "keep-alive", "date", "server"})
Refusal = tuple[int, str, str]
"""HTTP status, S3 error code, more XML."""


class Door:
    """A proxy before ``upstream`` (http://HOST:PORT). ``refusals`` are answered first, one a request; ``on_get`` is called with
    the path before each request is passed on. ``asked`` lists (method, path) of every request, refused or not."""

    def __init__(self, upstream: str) -> None:
        self.refusals: list[Refusal] = []
        self.headers: dict[str, str] = {}
        self.on_get: Callable[[str], None] = lambda path: None
        self.asked: list[tuple[str, str]] = []
        place, outer = urlsplit(upstream), self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                outer.asked.append((self.command, self.path))
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if outer.refusals:
                    self.answer(*outer.refuse())
                    return
                outer.on_get(self.path)
                onward = http.client.HTTPConnection(str(place.hostname), place.port, timeout=60)
                onward.request(self.command, self.path, body, dict(self.headers.items()))
                said = onward.getresponse()
                content = said.read()
                onward.close()
                self.answer(said.status, [(k, v) for k, v in said.getheaders() if k.lower() not in HOP], content)

            def answer(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
                self.send_response(status)
                for name, value in headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

            do_GET = do_HEAD = do_PUT = do_POST = handle_any

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def refuse(self) -> tuple[int, list[tuple[str, str]], bytes]:
        status, code, more = self.refusals.pop(0)
        body = f"<Error><Code>{code}</Code><Message>from the door</Message>{more}</Error>".encode()
        return status, [("Content-Type", "application/xml"), *self.headers.items()], body

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
