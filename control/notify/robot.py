"""Group robots: HTTP 200 with a code inside that says whether the message was taken. None can be asked: at least once."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from control.notify.http_call import Caller, attempt, judged
from core.ports import Delivery


def post(
    caller: Caller, url: Callable[[], str], body: Callable[[], Any], code_name: str, busy: Collection[int], what: str
) -> Delivery:
    """Post to a robot. Code 0 is taken, one of ``busy`` is tried again after a minute, another has failed."""

    def act() -> Delivery:
        answer = caller.json("POST", url(), {}, body())
        if not answer.ok:
            return judged(answer, what)
        found = answer.json()
        code = found.get(code_name) if isinstance(found, dict) else None
        if code == 0:
            return Delivery("delivered", f"{what}: taken")
        told = f"{what} says code {code}"
        return Delivery("retry", told, 60) if code in busy else Delivery("failed", told)

    return attempt(act, what)


def cut(text: str, most: int) -> str:
    """At most so many bytes of UTF-8, no character halved."""
    return text.encode()[:most].decode(errors="ignore")
