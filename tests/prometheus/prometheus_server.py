"""A real Prometheus on a folder of its own, and pages for it to scrape."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

UNPACKED = Path(__file__).parents[2] / ".local" / "prometheus" / "usr" / "bin"
Answer = Callable[[], bytes | None]
"""The page at this moment; None: the engine is down."""


def program(name: str) -> Path | None:
    found = shutil.which(name) or (UNPACKED / name if (UNPACKED / name).exists() else None)
    return Path(found) if found else None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Pages:
    """An HTTP server with one answer per path."""

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self.answers = dict(answers)
        pages = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = pages.answers[self.path]()
                self.send_response(200 if body is not None else 503)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                try:
                    self.wfile.write(body or b"")
                except OSError:
                    return  # a Prometheus killed in the middle of its scrape

            def log_message(self, format: str, *args: object) -> None:
                return

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        self.address = f"127.0.0.1:{self._http.server_port}"

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


class Prometheus:
    """The server's process; it can be killed and started again on the same data."""

    def __init__(self, folder: Path, scrape_configs: str, interval: str = "1s", web_config: str = "") -> None:
        self.folder, self.port = folder, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        limits = f"global: {{scrape_interval: {interval}, scrape_timeout: {interval}}}\n"
        (folder / "prometheus.yml").write_text(f"{limits}scrape_configs:\n{scrape_configs}")
        (folder / "web.yml").write_text(web_config)

    def start(self, *flags: str) -> None:
        binary = program("prometheus")
        assert binary is not None
        with (self.folder / "prometheus.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(binary), f"--config.file={self.folder}/prometheus.yml", f"--storage.tsdb.path={self.folder}/data",
                    f"--web.listen-address=127.0.0.1:{self.port}", f"--web.config.file={self.folder}/web.yml", *flags,
                ],
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self._process is not None and self._process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/-/ready", timeout=2):
                    return
            except urllib.error.HTTPError as error:
                if error.code == 401:
                    return
            except OSError:
                pass
            time.sleep(0.05)
        raise AssertionError((self.folder / "prometheus.log").read_text()[-2000:])

    def kill(self) -> None:
        """kill -9, at once."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, number)
            self._process.wait(30)
        self._process = None
