"""E-mail over SMTP: STARTTLS by default, one Message-ID per key, replies in one thread per incident. It cannot be asked: at least
once, and a mail program shows the same Message-ID once. RFC 5321, 5322, 3207."""

from __future__ import annotations

import hashlib
import smtplib
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from email.message import EmailMessage
from email.utils import format_datetime
from pathlib import Path
from typing import Literal

from core.errors import TokenfuseError
from core.message import Language, Message, message_of
from core.ports import Delivery, Effect

TIMEOUT_S = 15.0


@dataclass(frozen=True, slots=True)
class MailSettings:
    """``security``: starttls (refuses a server without it), tls (from the first byte) or none. ``password`` reads it."""

    host: str
    port: int
    sender: str
    to: tuple[str, ...]
    security: Literal["starttls", "tls", "none"] = "starttls"
    username: str = ""
    password: Callable[[], str] | None = None
    ca_file: Path | None = None
    language: Language = "en"


@dataclass(frozen=True, slots=True)
class MailEffector:
    settings: MailSettings

    def deliver(self, effect: Effect) -> Delivery:
        """4xx answers and network trouble are tried again; 5xx answers, and a server without STARTTLS, have failed."""
        message = message_of(effect.key, effect.payload, self.settings.language)
        try:
            return self._send(mail_of(message, self.settings))
        except TokenfuseError as error:
            return Delivery("retry", error.message)
        except smtplib.SMTPNotSupportedError:
            return Delivery("failed", "the mail server offers no STARTTLS or no sign-in")
        except smtplib.SMTPRecipientsRefused as error:
            return _judged(min((code for code, _ in error.recipients.values()), default=550))
        except smtplib.SMTPResponseException as error:
            return _judged(error.smtp_code)
        except (smtplib.SMTPException, ssl.SSLError, OSError) as error:
            return Delivery("retry", f"no answer from the mail server ({type(error).__name__})")

    def _send(self, mail: EmailMessage) -> Delivery:
        wanted = self.settings
        context = ssl.create_default_context(cafile=None if wanted.ca_file is None else str(wanted.ca_file))
        if wanted.security == "tls":
            server: smtplib.SMTP = smtplib.SMTP_SSL(wanted.host, wanted.port, timeout=TIMEOUT_S, context=context)
        else:
            server = smtplib.SMTP(wanted.host, wanted.port, timeout=TIMEOUT_S)
        with server:
            if wanted.security == "starttls":
                server.starttls(context=context)
            if wanted.username and wanted.password is not None:
                server.login(wanted.username, wanted.password())
            refused = server.send_message(mail, wanted.sender, list(wanted.to))
        return Delivery("delivered", f"{len(refused)} of {len(wanted.to)} recipients refused" if refused else "mail taken")


def mail_of(message: Message, settings: MailSettings) -> EmailMessage:
    """Headers cannot be broken: the subject is one line."""
    mail = EmailMessage()
    domain = settings.sender.rpartition("@")[2]
    mail["Subject"] = " ".join(message.title.split())
    mail["From"] = settings.sender
    mail["To"] = ", ".join(settings.to)
    mail["Date"] = format_datetime(datetime.fromisoformat(message.at))
    mail["Message-ID"] = f"<{_id(message.key)}@{domain}>"
    mail["References"] = f"<{_id(message.thread)}@{domain}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(message.text)
    return mail


def _id(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:40]


def _judged(code: int) -> Delivery:
    if code < 500:
        return Delivery("retry", f"the mail server says {code}")
    return Delivery("failed", f"the mail server says {code}: it does not take it")
