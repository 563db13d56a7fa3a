"""A vendor's API on a real local socket: routes answer by Python, requests are kept, trouble can be ordered."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Answered = tuple[int, Any]
Route = Callable[[Asked], Answered]


@dataclass
class Vendor:
    """``answer`` is the vendor; ``trouble`` (status, headers) is answered instead, before the vendor sees anything;
    ``lost``: the next answer to a POST whose path ends so is cut off after the vendor acted, as when the caller is killed."""

    answer: Route
    trouble: tuple[int, dict[str, str]] | None = None
    lost: str = ""
    asked: list[Asked] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    url: str = ""


@contextmanager
def serving(answer: Route) -> Iterator[Vendor]:
    vendor = Vendor(answer)

    class Handler(BaseHTTPRequestHandler):
        def _any(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            asked = Asked(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body)
            with vendor.lock:
                vendor.asked.append(asked)
                if vendor.trouble is not None:
                    status, headers = vendor.trouble
                    return self._send(status, headers, b"{}")
                status, answered = vendor.answer(asked)
                if asked.method == "POST" and vendor.lost and asked.path.endswith(vendor.lost):
                    vendor.lost = ""
                    self.close_connection = True
                    return None
            return self._send(status, {}, b"" if answered is None else json.dumps(answered).encode())

        do_GET = do_POST = do_PUT = _any

        def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    vendor.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield vendor
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
