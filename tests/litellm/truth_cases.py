"""What is asked of LiteLLM, and what of it can be known: by our hook, and by ``generic_api`` alone."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from truth_upstream import Told

ASKED: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
UNASKED: dict[str, Any] = {"stream": True}
LONG = {"every_s": 0.05, "chunks": 40, "completion": 400}
EXACT, FLAGGED = "exact", "flagged"


@dataclass
class Client:
    """Calls through the proxy. The case's name is the team of the key: every record names its case."""

    url: str

    def send(self, case: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, str]:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer sk-acme-{case}-ann"}
        raw = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, raw, headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as got:
                return got.status, got.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def leave(self, case: str, body: dict[str, Any], lines: int | None) -> None:
        """Go away after so many lines of the answer; None: before there is any."""
        host = self.url.removeprefix("http://")
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer sk-acme-{case}-ann"}
        connection = http.client.HTTPConnection(host, timeout=60)
        connection.request("POST", "/v1/chat/completions", json.dumps(body).encode(), headers)
        if lines is None:
            time.sleep(0.4)
        else:
            answer = connection.getresponse()
            for _ in range(lines):
                answer.readline()
            answer.close()
        connection.close()


@dataclass(frozen=True)
class Case:
    """``hook`` and ``alone``: whether its tokens can be known by our hook, and without it. ``operations``: what was asked, None
    where LiteLLM tells nobody; ``attempts`` LiteLLM's rows of it. ``by`` is who does it, chat where not given."""

    told: Told
    more: dict[str, Any] = field(default_factory=dict)
    model: str = "tiny"
    hook: str = EXACT
    alone: str = EXACT
    status: str = "ok"
    attempts: int = 1
    by: Callable[[Client, Case], None] | None = None

    def body(self) -> dict[str, Any]:
        return {"model": self.model, "messages": [{"role": "user", "content": self.told.text()}], **self.more}

    def run(self, client: Client) -> None:
        if self.by is not None:
            self.by(client, self)
        else:
            client.send(self.told.case, "/v1/chat/completions", self.body())


def leaves(lines: int | None) -> Callable[[Client, Case], None]:
    return lambda client, case: client.leave(case.told.case, case.body(), lines)


def posts(path: str, **fields: Any) -> Callable[[Client, Case], None]:
    """Text in ``input``."""
    return lambda client, case: (
        client.send(case.told.case, path, {"model": case.model, "input": case.told.text(), **case.more, **fields}),
        None,
    )[1]


def polled(client: Client, case: Case) -> None:
    """A response made, then read back three times."""
    _, text = client.send(case.told.case, "/v1/responses", {"model": case.model, "input": case.told.text()})
    for _ in range(3):
        client.send(case.told.case, f"/v1/responses/{json.loads(text)['id']}")


def messages(client: Client, case: Case) -> None:
    """Anthropic's messages, bridged to a chat."""
    client.send(case.told.case, "/v1/messages", {**case.body(), "max_tokens": 100})


PLAIN = {"details": False}
CASES = (
    Case(Told("buffered", cached=64)),
    Case(Told("bufferedplain", **PLAIN)),
    Case(Told("bufferedreasoning", prompt=50, completion=900, reasoning=840)),
    Case(Told("bufferedsilent", usage="ignored"), hook=FLAGGED, alone=FLAGGED),
    Case(Told("asked", cached=64), ASKED),
    Case(Told("askedplain", **PLAIN), ASKED, alone=FLAGGED),
    Case(Told("unasked"), UNASKED, hook=FLAGGED, alone=FLAGGED),
    Case(Told("unaskedreasoning", prompt=50, completion=900, reasoning=840), UNASKED, hook=FLAGGED, alone=FLAGGED),
    Case(Told("askedbyconfig"), UNASKED, "asking", hook=FLAGGED, alone=FLAGGED),
    Case(Told("onchoices", prompt=16111, cached=15872, completion=2, usage="on_choices"), ASKED),
    Case(Told("running", usage="running"), UNASKED),
    Case(Told("runningplain", usage="running", **PLAIN), ASKED, alone=FLAGGED),
    Case(Told("twice", usage="both"), ASKED),
    Case(Told("ignored", usage="ignored"), ASKED, hook=FLAGGED, alone=FLAGGED),
    Case(Told("reasoning", prompt=50, completion=900, reasoning=840), ASKED),
    Case(Told("slow", every_s=0.3), ASKED),
    Case(Told("two", answers=2), {"n": 2}),
    Case(Told("twostreamed", answers=2), {"n": 2, **ASKED}),
    Case(Told("cut", cut_after=12), ASKED, hook=FLAGGED, alone=FLAGGED),
    Case(Told("retried", fail=(500, 500)), attempts=2),
    Case(Told("retriedstream", fail=(500, 429)), ASKED, attempts=3),
    Case(Told("failing", fail=(500, 500, 500)), status="error", hook=FLAGGED, alone=FLAGGED),
    Case(Told("bad", fail=(400,)), status="error", hook=FLAGGED, alone=FLAGGED),
    Case(Told("fellback"), model="broken", attempts=2),
    Case(Told("fellbackstream"), ASKED, "broken", attempts=4),
    Case(Told("timedout", wait_s=8), model="impatient", status="error", hook=FLAGGED, alone=FLAGGED),
    Case(Told("left", **LONG), ASKED, status="aborted", hook=FLAGGED, alone=FLAGGED, by=leaves(6)),
    Case(Told("leftrunning", usage="running", **LONG), ASKED, status="aborted", hook=FLAGGED, alone=FLAGGED, by=leaves(6)),
    Case(Told("leftearly", wait_s=1.0), ASKED, status="aborted", hook=FLAGGED, alone=FLAGGED, by=leaves(None)),
    Case(Told("leftbuffered", wait_s=1.0), by=leaves(None)),
    Case(Told("responses", cached=16, reasoning=8), by=posts("/v1/responses")),
    Case(Told("responsesstream", cached=16), by=posts("/v1/responses", stream=True)),
    Case(Told("polled", cached=16), model="native", by=polled),
    Case(Told("bridged", cached=16), model="chatonly", by=posts("/v1/responses")),
    Case(Told("bridgedstream", cached=16), model="chatonly", by=posts("/v1/responses", stream=True)),
    Case(Told("messages", cached=16), by=messages),
    Case(Told("messagesstream", cached=16), UNASKED, by=messages),
    Case(Told("embedded", completion=0), model="embed", by=posts("/v1/embeddings")),
)
