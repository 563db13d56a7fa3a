"""E-mail to a real SMTP server on a socket, with a real STARTTLS."""

from __future__ import annotations

import socketserver
import ssl
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from told_incidents import effects

from control.notify.email import MailEffector, MailSettings

FIRST, CHANGED, OVER = effects()
PASSWORD = "mail-t0ken"


class Session(socketserver.StreamRequestHandler):
    """EHLO, STARTTLS, AUTH, MAIL, RCPT, DATA, QUIT, as RFC 5321 and 3207 have them."""

    server: Any

    def say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())

    def handle(self) -> None:
        self.say("220 mail.test")
        self.is_safe = False
        while line := self.rfile.readline():
            word = line[:4].decode().upper().strip()
            if word == "QUIT":
                self.say("221 bye")
                return
            self.command(word, line.decode().strip())

    def command(self, word: str, line: str) -> None:
        world = self.server.world
        if word == "EHLO":
            self.say("250-mail.test")
            self.say("250-STARTTLS" if world["starttls"] and not self.is_safe else "250-SIZE 1000000")
            self.say("250 AUTH PLAIN")
        elif line.upper() == "STARTTLS":
            self.say("220 go")
            self.connection = world["context"].wrap_socket(self.request, server_side=True)
            self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb", buffering=0)
            self.is_safe = True
        elif word == "AUTH":
            world["safe_auth"].append(self.is_safe)
            self.say(world["auth"])
        elif word == "RCPT":
            self.say(world["rcpt"])
        elif word == "DATA":
            self.say("354 go on")
            lines = []
            while (one := self.rfile.readline()) != b".\r\n":
                lines.append(one)
            world["mails"].append(message_from_bytes(b"".join(lines), policy=policy.default))
            self.say("250 taken")
        else:
            self.say("250 ok")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True).sign(key, hashes.SHA256())
    )  # fmt: skip
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.fixture
def world(certificate: Path) -> Iterator[dict[str, Any]]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    found: dict[str, Any] = {"context": context, "starttls": True, "mails": [], "safe_auth": []}
    found |= {"auth": "235 welcome", "rcpt": "250 ok"}
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Session) as server:
        server.daemon_threads = True
        server.world = found  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        found["port"] = server.server_address[1]
        yield found
        server.shutdown()
        thread.join()


def mail(world: dict[str, Any], certificate: Path, **changes: Any) -> MailEffector:
    to = ("ann@acme.example", "bob@acme.example")
    settings = MailSettings(
        "localhost", world["port"], "tokenfuse@acme.example", to, "starttls", "bot", lambda: PASSWORD, certificate
    )
    return MailEffector(replace(settings, **changes))


def test_an_incident_is_a_thread_signed_in_over_tls(world: dict[str, Any], certificate: Path) -> None:
    ops = mail(world, certificate)
    assert [ops.deliver(e).outcome for e in (FIRST, CHANGED, OVER)] == ["delivered"] * 3
    mails = world["mails"]
    assert world["safe_auth"] == [True] * 3
    assert len({m["Message-ID"] for m in mails}) == 3
    assert len({m["References"] for m in mails}) == 1
    assert mails[0]["Subject"] == "[PAGE] tenant:acme/red: breaker open"
    assert "95.25 of cap 100 USD" in mails[0].get_content()
    assert "原因" in mails[0].get_content()


def test_the_same_key_has_the_same_message_id(world: dict[str, Any], certificate: Path) -> None:
    for _ in range(2):
        mail(world, certificate).deliver(FIRST)
    assert len({m["Message-ID"] for m in world["mails"]}) == 1


def test_a_server_without_starttls_is_told_nothing(world: dict[str, Any], certificate: Path) -> None:
    world["starttls"] = False
    found = mail(world, certificate).deliver(FIRST)
    assert (found.outcome, world["mails"], world["safe_auth"]) == ("failed", [], [])


def test_an_unknown_certificate_is_not_trusted(world: dict[str, Any], certificate: Path) -> None:
    assert mail(world, certificate, ca_file=None).deliver(FIRST).outcome == "retry"
    assert world["mails"] == []


@pytest.mark.parametrize(
    ("change", "outcome"),
    [({"auth": "535 no"}, "failed"), ({"auth": "454 later"}, "retry"), ({"rcpt": "550 unknown"}, "failed"),
     ({"rcpt": "451 later"}, "retry")],
)  # fmt: skip
def test_refusals_are_judged_and_tell_no_secret(
    world: dict[str, Any], certificate: Path, change: dict[str, str], outcome: str
) -> None:
    world.update(change)
    found = mail(world, certificate).deliver(FIRST)
    assert (found.outcome, PASSWORD in found.detail) == (outcome, False)


def test_nobody_there_is_tried_again(certificate: Path) -> None:
    assert mail({"port": 1}, certificate).deliver(FIRST).outcome == "retry"


def test_a_subject_is_one_line(world: dict[str, Any], certificate: Path) -> None:
    evil = replace(FIRST, payload={**FIRST.payload, "cause": "x\r\nBcc: all@acme.example"})
    assert mail(world, certificate, security="none").deliver(evil).outcome == "delivered"
    assert world["mails"][0]["Bcc"] is None
