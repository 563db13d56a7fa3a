"""How a Prometheus-compatible server is asked, and what is not taken for an answer."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

from core.errors import BadInput, Refused, Unavailable
from core.windows import epoch_ms
from ingest.prometheus.api import PrometheusApi, TooMuch
from ingest.prometheus.settings import Access, PrometheusSettings

AT = datetime(2026, 11, 30, 14, tzinfo=UTC)
BEFORE = AT - timedelta(seconds=60)
Reply = tuple[int, Mapping[str, str], str]
EMPTY = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": []}})


@dataclass
class Server:
    """Answers every request with ``reply`` and keeps what it was asked."""

    reply: Callable[[str, dict[str, str]], Reply] = lambda path, query: (200, {}, EMPTY)
    asked: list[tuple[str, dict[str, str], dict[str, str]]] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def server() -> Iterator[Server]:
    yield from serve(Server(), None)


def serve(server: Server, context: ssl.SSLContext | None) -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = dict(parse_qsl(parts.query))
            server.asked.append((parts.path, query, {name.lower(): value for name, value in self.headers.items()}))
            status, headers, body = server.reply(parts.path, query)
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body.encode())), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:
            return

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.handle_error = lambda *_: None  # type: ignore[method-assign]
    if context is not None:
        http.socket = context.wrap_socket(http.socket, server_side=True)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    server.url = f"{'https' if context else 'http'}://127.0.0.1:{http.server_port}"
    yield server
    http.shutdown()
    thread.join()
    http.server_close()


def ask(access: Access) -> None:
    api = PrometheusApi(access)
    try:
        api.raw('job="vllm"', BEFORE, AT)
    finally:
        api.close()


def test_the_question_is_for_raw_samples_and_forbids_invention(server: Server) -> None:
    ask(Access(server.url + "/prometheus/", params={"tenant": "x"}))
    [(path, query, _)] = server.asked
    assert path == "/prometheus/api/v1/query"
    assert query.pop("query") == '{job="vllm"}[60001ms]'
    assert query.pop("time") == f"{epoch_ms(AT) // 1000}.000"
    assert query == {
        "dedup": "false",
        "partial_response": "false",
        "max_source_resolution": "0s",
        "nocache": "1",
        "deny_partial_response": "1",
        "tenant": "x",
    }


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({}, None),
        ({"token": "abc"}, "Bearer abc"),
        ({"username": "me", "password": "p:w"}, "Basic " + base64.b64encode(b"me:p:w").decode()),
    ],
)
def test_signing_in(server: Server, given: dict[str, str], sent: str | None) -> None:
    ask(Access(server.url, headers={"X-Scope-OrgID": "ml"}, **given))  # type: ignore[arg-type]
    [(_, _, headers)] = server.asked
    assert headers.get("authorization") == sent
    assert headers["x-scope-orgid"] == "ml"


def test_a_token_file_is_read_anew_for_every_request(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "token"
    api = PrometheusApi(Access(server.url, token_file=file))
    for token in ("first", "second"):
        file.write_text(token + "\n")
        api.raw("a", BEFORE, AT)
    api.close()
    assert [headers["authorization"] for _, _, headers in server.asked] == ["Bearer first", "Bearer second"]


def test_a_token_file_that_is_not_there_is_named(server: Server, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no-such-file"):
        ask(Access(server.url, token_file=tmp_path / "no-such-file"))


def test_the_environments_proxies_and_netrc_are_not_used(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    ask(Access(server.url))
    assert len(server.asked) == 1


def test_secrets_do_not_show() -> None:
    shown = repr(Access("http://p", username="me", password="hunter2", headers={"X-Key": "hunter3"}))
    assert "hunter" not in shown


def failing(status: int, body: str = "{}", **headers: str) -> Callable[[str, dict[str, str]], Reply]:
    return lambda path, query: (status, headers, body)


@pytest.mark.parametrize(
    ("reply", "error", "part"),
    [
        (failing(401), Refused, "401"),
        (failing(403), Refused, "403"),
        (failing(302, "", Location="http://elsewhere/"), Refused, "elsewhere"),
        (failing(404), BadInput, "no such page"),
        (failing(400, '{"error": "parse error"}'), BadInput, "parse error"),
        (failing(422, '{"error": "query processing would load too many samples into memory"}'), TooMuch, "too many"),
        (failing(503, '{"error": "query timed out in expression evaluation"}'), TooMuch, "timed out"),
        (failing(500), Unavailable, "500"),
        (failing(503), Unavailable, "503"),
        (failing(200, "<html>sign in</html>"), BadInput, "JSON"),
        (failing(200, '{"status": "success"}'), BadInput, "does not answer like"),
        (failing(200, '{"status": "success", "data": {"result": [{"metric": {}, "value": [1, "2"]}]}}'), BadInput, "raw samples"),
        (failing(200, '{"status":"success","warnings":["store-2 is down"],"data":{"result":[]}}'), Unavailable, "store-2"),
    ],
)
def test_what_is_no_whole_answer_is_an_error(
    server: Server, reply: Callable[[str, dict[str, str]], Reply], error: type[Exception], part: str
) -> None:
    server.reply = reply
    with pytest.raises(error) as caught:
        ask(Access(server.url, token="s3cret"))
    assert part in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_samples_outside_the_window_are_left_out_whatever_the_servers_edges_are(server: Server) -> None:
    edges = [BEFORE - timedelta(milliseconds=1), BEFORE, AT - timedelta(milliseconds=1), AT]
    values = [[epoch_ms(at) / 1000, "7"] for at in edges]
    body = {"status": "success", "data": {"result": [{"metric": {"__name__": "a"}, "values": values}]}}
    server.reply = lambda path, query: (200, {}, json.dumps(body))
    api = PrometheusApi(Access(server.url))
    [found] = api.raw("a", BEFORE, AT)
    api.close()
    assert found.points == ((epoch_ms(BEFORE), "7"), (epoch_ms(AT) - 1, "7"))


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"url": "prometheus:9090"}, "prometheus.url"),
        ({"url": "ftp://p"}, "prometheus.url"),
        ({"url": "http://me:pw@p"}, "prometheus.url"),
        ({"url": "http://p", "token": "a", "username": "b"}, "prometheus.token"),
        ({"url": "http://p", "cert_file": Path("c.pem")}, "prometheus.cert_file"),
    ],
)
def test_a_wrong_access_is_named(given: dict[str, object], name: str) -> None:
    with pytest.raises(BadInput) as caught:
        Access(**given)  # type: ignore[arg-type]
    assert caught.value.field == name


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"name": "../a"}, "prometheus.name"),
        ({"match": '{job="a"}'}, "prometheus.match"),
        ({"window_s": 0.0}, "prometheus.window_s"),
        ({"lag_s": -1.0}, "prometheus.lag_s"),
    ],
)
def test_a_wrong_setting_is_named(given: dict[str, object], name: str) -> None:
    with pytest.raises(BadInput) as caught:
        PrometheusSettings(**{"name": "a", "access": Access("http://p"), **given})  # type: ignore[arg-type]
    assert caught.value.field == name


@dataclass(frozen=True)
class Certificates:
    folder: Path

    @property
    def authority(self) -> Path:
        return self.folder / "ca.pem"

    def pair(self, name: str) -> tuple[Path, Path]:
        return self.folder / f"{name}.pem", self.folder / f"{name}.key"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority of its own with a certificate for the server and one for us."""
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    new = ("req", "-newkey", "rsa:2048", "-nodes")
    openssl(*new, "-x509", "-days", "2", "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1")
    for name in ("server", "client"):
        openssl(*new, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        signed = ("-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
        openssl("x509", "-req", *signed, "-out", f"{name}.pem")
    return Certificates(folder)


@pytest.fixture
def mutual(certificates: Certificates) -> Iterator[Server]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificates.pair("server"))
    context.load_verify_locations(certificates.authority)
    context.verify_mode = ssl.CERT_REQUIRED
    yield from serve(Server(), context)


def test_mutual_tls_with_an_authority_of_ones_own(mutual: Server, certificates: Certificates) -> None:
    certificate, key = certificates.pair("client")
    ask(Access(mutual.url, ca_file=certificates.authority, cert_file=certificate, key_file=key))
    assert len(mutual.asked) == 1


def test_without_a_certificate_of_ours_or_an_authority_we_trust_nothing_is_asked(
    mutual: Server, certificates: Certificates
) -> None:
    certificate, key = certificates.pair("client")
    with pytest.raises((Refused, Unavailable)):
        ask(Access(mutual.url, ca_file=certificates.authority))
    with pytest.raises(Refused, match="certificate"):
        ask(Access(mutual.url, cert_file=certificate, key_file=key))
    with pytest.raises(BadInput, match="cannot be read"):
        ask(Access(mutual.url, ca_file=certificates.folder / "absent.pem"))
    assert mutual.asked == []
