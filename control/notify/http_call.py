"""One HTTP call to a channel: only to a checked address, no redirect, no proxy of the environment, and its answer judged."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from control.notify.addresses import Resolver, check_destination, resolve
from core.errors import BadInput, TokenfuseError
from core.ports import Delivery

RETRY_STATUSES = frozenset({408, 409, 425, 429})
MAX_RETRY_AFTER_S = 3600
MAX_ANSWER_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    def json(self) -> Any:
        """The body as JSON; {} when it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return {}


@dataclass(frozen=True, slots=True)
class Caller:
    """How a channel reaches its vendor. ``allow_private`` permits private targets and plain http."""

    allow_private: bool = False
    timeout_s: float = 10.0
    resolver: Resolver = resolve

    def call(self, method: str, url: str, headers: Mapping[str, str], content: bytes = b"") -> Answer:
        """Raises BadInput for a target that is not allowed, Unavailable or an httpx error when nobody answers."""
        target = check_destination(url, allow_private=self.allow_private, resolver=self.resolver)
        address = f"[{target.address}]" if ":" in target.address else target.address
        host = target.host if target.port in (80, 443) else f"{target.host}:{target.port}"
        with httpx.Client(timeout=self.timeout_s, follow_redirects=False, trust_env=False) as client:
            request = client.build_request(
                method,
                f"{target.scheme}://{address}:{target.port}{target.path}",
                content=content or None,
                headers={"host": host, **headers},
                extensions={"sni_hostname": target.host},
            )
            response = client.send(request, stream=True)
            try:
                body = b""
                for chunk in response.iter_bytes():
                    body += chunk
                    if len(body) > MAX_ANSWER_BYTES:
                        break
                return Answer(response.status_code, dict(response.headers), body)
            finally:
                response.close()

    def json(self, method: str, url: str, headers: Mapping[str, str], body: Any = None) -> Answer:
        content = b"" if body is None else json.dumps(body, ensure_ascii=False).encode()
        return self.call(method, url, {"content-type": "application/json; charset=utf-8", **headers}, content)


def attempt(act: Callable[[], Delivery], what: str) -> Delivery:
    """Carry out a delivery; what goes wrong on the way is tried again or refused, and told without address or secret."""
    try:
        return act()
    except NotTaken as error:
        return judged(error.answer, what)
    except BadInput as error:
        return Delivery("failed", str(error))
    except TokenfuseError as error:
        return Delivery("retry", error.message)
    except (httpx.HTTPError, ssl.SSLError, OSError) as error:
        return Delivery("retry", f"no answer from {what} ({type(error).__name__})")


class NotTaken(Exception):
    """An answer that is no success."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"HTTP {answer.status}")
        self.answer = answer


def taken(answer: Answer) -> Answer:
    """The answer itself. Raises NotTaken unless it is a success."""
    if not answer.ok:
        raise NotTaken(answer)
    return answer


def judged(answer: Answer, what: str, told: str = "") -> Delivery:
    """2xx is delivered; 408, 409, 425, 429 and 5xx are tried again, not before Retry-After; anything else has failed."""
    status = answer.status
    if answer.ok:
        return Delivery("delivered", f"HTTP {status}")
    if status in RETRY_STATUSES or status >= 500:
        return Delivery("retry", f"HTTP {status}", retry_after_s(answer))
    return Delivery("failed", f"HTTP {status}: {what} does not take it{f' ({told})' if told else ''}")


def retry_after_s(answer: Answer) -> int:
    after = answer.headers.get("retry-after", "")
    return min(int(after), MAX_RETRY_AFTER_S) if after.isdecimal() else 0
