"""One HTTP call to the centre with urllib: bearer token, no redirects (the token must not travel), bounded answer."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, NamedTuple

MAX_ANSWER_BYTES = 64 * 1024 * 1024


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


def call(
    method: str, url: str, token: str, *, body: bytes | None = None, headers: dict[str, str] | None = None, timeout_s: float
) -> Answer:
    """Any status is an answer. Raises OSError (URLError, timeout) when there is none."""
    sent = {"Authorization": f"Bearer {token}", "Accept": "application/json", "User-Agent": "tokenfuse-guard"}
    sent.update(headers or {})
    request = urllib.request.Request(url, data=body, headers=sent, method=method)
    try:
        with _OPENER.open(request, timeout=timeout_s) as got:
            return Answer(got.status, {k.lower(): v for k, v in got.headers.items()}, got.read(MAX_ANSWER_BYTES))
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, {k.lower(): v for k, v in error.headers.items()}, error.read(MAX_ANSWER_BYTES))
