"""A small local HTTP server that answers like the API, for the browser journey."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from sample_answers import ledger, overview, unit_costs
from sample_compare import comparisons, unpriced
from sample_explain import explanations
from sample_fleet import efficiencies, heat_maps
from sample_fleet_checks import fleet_checks
from sample_quality import coverages, qualities
from sample_reconcile import reconciliations

GOOD_TOKEN = "tf_1_journey-secret"
ROUTES = {
    "/v1/overview": overview,
    "/v1/unit-cost": unit_costs,
    "/v1/explain": explanations,
    "/v1/reconcile": reconciliations,
    "/v1/compare": comparisons,
    "/v1/unpriced": unpriced,
    "/v1/ledger": ledger,
    "/v1/heat-map": heat_maps,
    "/v1/efficiency": efficiencies,
    "/v1/fleet/checks": fleet_checks,
    "/v1/coverage": coverages,
    "/v1/quality": qualities,
}


class Api(ThreadingHTTPServer):
    """``revoked`` makes it refuse every token."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.revoked = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Api
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        if self.server.revoked or self.headers.get("Authorization") != f"Bearer {GOOD_TOKEN}":
            self._answer(401, {"error": {"code": "unauthenticated", "message": "unknown token", "hint": "make a new one"}})
            return
        params = dict(parse_qsl(asked.query, keep_blank_values=True))
        self._answer(200, ROUTES[asked.path](params, "data", datetime.now(UTC)))

    def _answer(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet: a failing test shows the page instead."""


@contextmanager
def serving() -> Iterator[Api]:
    api = Api()
    thread = threading.Thread(target=api.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield api
    finally:
        api.shutdown()
        api.server_close()
        thread.join(5)
