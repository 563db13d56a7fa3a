"""The effector port: every adapter, and the fake used elsewhere, keeps the same promises; and what the webhook adds to them."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from control.notify.addresses import check_destination, is_public
from control.notify.webhook import WebhookEffector, WebhookSettings, signature
from core.errors import BadInput, Unavailable
from core.ports import Delivery, Effect, Effector

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
SECRET = b"s3cret-s3cret-s3cret-s3cret-0000"
EFFECT = Effect("breaker:7:3:notify", "notify", {"scope": "tenant:acme/red", "reason": "95 % of the cap – größer", "epoch": 3})


@dataclass
class Receiver:
    """A webhook receiver that does as documented: checks the signature, acts once per idempotency key."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    acted: set[str] = field(default_factory=set)
    url: str = ""

    def take(self, headers: dict[str, str], body: bytes) -> int:
        self.requests.append((headers, body))
        at, given = (part.partition("=")[2] for part in headers["x-tokenfuse-signature"].split(","))
        if not hmac.compare_digest(given, hmac.new(SECRET, f"{at}.".encode() + body, hashlib.sha256).hexdigest()):
            return 401
        if self.status == 200:
            self.acted.add(headers["idempotency-key"])
        return self.status


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            self.send_response(found.take({k.lower(): v for k, v in self.headers.items()}, body))
            for name, value in found.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    found.url = f"http://127.0.0.1:{server.server_port}/hook?team=finops"
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


def webhook(url: str, *, private: bool = True) -> WebhookEffector:
    return WebhookEffector(WebhookSettings(url, SECRET, allow_private=private, timeout_s=2), lambda: NOW)


class FakeEffector:
    """The fake: acts once per key."""

    def __init__(self, acted: set[str]) -> None:
        self.acted = acted

    def deliver(self, effect: Effect) -> Delivery:
        self.acted.add(effect.key)
        return Delivery("delivered")


@pytest.fixture(params=["webhook", "fake"])
def adapter(request: pytest.FixtureRequest, receiver: Receiver) -> tuple[Effector, Callable[[], set[str]]]:
    if request.param == "fake":
        acted: set[str] = set()
        return FakeEffector(acted), lambda: acted
    return webhook(receiver.url), lambda: receiver.acted


def test_a_delivered_effect_was_acted_on(adapter: tuple[Effector, Callable[[], set[str]]]) -> None:
    effector, acted = adapter
    assert effector.deliver(EFFECT).outcome == "delivered"
    assert acted() == {EFFECT.key}


def test_the_same_key_twice_acts_once(adapter: tuple[Effector, Callable[[], set[str]]]) -> None:
    effector, acted = adapter
    assert [effector.deliver(EFFECT).outcome for _ in range(2)] == ["delivered"] * 2
    assert acted() == {EFFECT.key}


def test_the_webhook_sends_signed_canonical_json(receiver: Receiver) -> None:
    webhook(receiver.url).deliver(EFFECT)
    ((headers, body),) = receiver.requests
    assert json.loads(body) == {"key": EFFECT.key, "kind": "notify", **EFFECT.payload}
    assert headers["x-tokenfuse-signature"] == signature(SECRET, 1_796_040_000, body.decode())
    assert (headers["content-type"], headers["idempotency-key"]) == ("application/json", EFFECT.key)


def test_a_receiver_with_another_secret_refuses_for_good(receiver: Receiver) -> None:
    other = WebhookEffector(WebhookSettings(receiver.url, b"x" * 32, allow_private=True), lambda: NOW)
    assert other.deliver(EFFECT) == Delivery("failed", "HTTP 401: the webhook does not take it")


@pytest.mark.parametrize(
    ("status", "headers", "outcome", "after"),
    [
        (200, {}, "delivered", 0), (204, {}, "delivered", 0), (429, {"retry-after": "17"}, "retry", 17), (503, {}, "retry", 0),
        (500, {"retry-after": "99999"}, "retry", 3600), (503, {"retry-after": "Mon, 30 Nov 2026 12:00:00 GMT"}, "retry", 0),
        (400, {}, "failed", 0), (404, {}, "failed", 0), (302, {"location": "http://127.0.0.1:1/"}, "failed", 0),
    ],
)  # fmt: skip
def test_answers_are_judged(receiver: Receiver, status: int, headers: dict[str, str], outcome: str, after: int) -> None:
    receiver.status, receiver.headers = status, headers
    found = webhook(receiver.url).deliver(EFFECT)
    assert (found.outcome, found.retry_after_s, len(receiver.requests)) == (outcome, after, 1)


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1/hook", "https://127.0.0.1/t0ken", "https://[::1]/t0ken", "https://169.254.169.254/t0ken", "https://10.1.2.3/t0ken",
     "https://192.168.0.1/t0ken", "https://[fe80::1]/t0ken", "https://[::ffff:10.0.0.1]/t0ken", "https://0.0.0.0/t0ken", "https://2130706433/t0ken",
     "ftp://example.com/t0ken", "https://user:t0ken@example.com/", "t0ken", "https:///t0ken"],
)  # fmt: skip
def test_private_targets_are_refused_and_the_url_is_never_told(url: str) -> None:
    found = webhook(url, private=False).deliver(EFFECT)
    assert found.outcome == "failed"
    assert "t0ken" not in found.detail
    assert "s3cret" not in found.detail + repr(WebhookSettings(url, SECRET))


@pytest.mark.parametrize(
    ("addresses", "refused"),
    [(["93.184.216.34"], False), (["93.184.216.34", "10.0.0.1"], True), (["2606:2800:220:1::1"], False), (["fd00::1"], True)],
)
def test_every_address_of_a_name_must_be_public(addresses: list[str], refused: bool) -> None:
    if refused:
        with pytest.raises(BadInput, match="not public"):
            check_destination("https://hook.example/x", allow_private=False, resolver=lambda host, port: addresses)
    else:
        found = check_destination("https://hook.example/x", allow_private=False, resolver=lambda host, port: addresses)
        assert (found.address, found.host, found.port) == (addresses[0], "hook.example", 443)


@pytest.mark.parametrize(
    ("address", "public"),
    [("8.8.8.8", True), ("100.64.0.1", False), ("224.0.0.1", False), ("::ffff:8.8.8.8", True), ("64:ff9b::a00:1", False),
     ("2002:a00:1::", False), ("192.0.2.1", False), ("255.255.255.255", False)],
)  # fmt: skip
def test_what_counts_as_public(address: str, public: bool) -> None:
    assert is_public(address) is public


def test_nobody_there_is_tried_again_without_telling_where(receiver: Receiver) -> None:
    found = webhook("http://127.0.0.1:1/t0ken").deliver(EFFECT)
    assert (found.outcome, found.detail) == ("retry", "no answer from the webhook (ConnectError)")


def test_a_name_that_does_not_resolve_is_tried_again() -> None:
    def nowhere(host: str, port: int) -> list[str]:
        raise Unavailable(f"the webhook's host {host!r} does not resolve")

    settings = WebhookSettings("https://hook.invalid/x", SECRET)
    assert WebhookEffector(settings, lambda: NOW, nowhere).deliver(EFFECT).outcome == "retry"


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(BadInput, match="16 bytes"):
        WebhookSettings("https://hook.example/x", b"short")
