"""The client turns every way an answer can fail into words and a hint; the launch reads its own words only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from ui.client import ApiProblem, Client
from ui.launch import Launch, read_launch


def _client(handler: Callable[[httpx.Request], httpx.Response]) -> Client:
    return Client(httpx.Client(transport=httpx.MockTransport(handler), base_url="http://api"), "tf_1_s")


def _error(status: int, **fields: str) -> Callable[[httpx.Request], httpx.Response]:
    return lambda _request: httpx.Response(status, json={"error": fields})


def _slow(_request: httpx.Request) -> httpx.Response:
    raise httpx.ReadTimeout("slow")


def _down(_request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("refused")


FAILURES = [
    pytest.param(_down, "cannot be reached", "tokenfuse doctor", False, id="down"),
    pytest.param(_slow, "longer than 15 seconds", "shorter time range", False, id="slow"),
    pytest.param(_error(401, message="unknown token"), "not accepted", "unknown token", True, id="expired"),
    pytest.param(_error(403, message="no scope 'read'", hint="make one"), "no scope 'read'", "make one", False, id="scope"),
    pytest.param(_error(400, message="must be a whole minute", field="from"), "from: must be", "", False, id="bad"),
    pytest.param(_error(503, message="the database is away", hint="run it"), "database", "run it", False, id="no database"),
    pytest.param(lambda _r: httpx.Response(502, text="<html>"), "not the Tokenfuse API", "502", False, id="proxy"),
    pytest.param(lambda _r: httpx.Response(200, text="hello"), "not the Tokenfuse API", "--api-url", False, id="not JSON"),
    pytest.param(lambda _r: httpx.Response(500, json={"error": "x"}), "answered 500", "", False, id="strange error"),
]  # fmt: skip


@pytest.mark.parametrize(("handler", "says", "hint", "signed_out"), FAILURES)
def test_a_failed_answer_says_what_to_do(
    handler: Callable[[httpx.Request], httpx.Response], says: str, hint: str, signed_out: bool
) -> None:
    with pytest.raises(ApiProblem, match=says) as caught:
        _client(handler).overview({})
    assert hint in caught.value.hint
    assert caught.value.signed_out == signed_out


def test_the_token_goes_with_every_read_and_money_stays_text() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={"spend": "0.100000000001"})

    client = _client(answer)
    assert client.overview({"basis": "usage"}) == {"spend": "0.100000000001"}
    client.unit_cost({"by": ""})
    client.ledger({})
    assert [str(request.url) for request in seen] == [
        "http://api/v1/overview?basis=usage",
        "http://api/v1/unit-cost?by=",
        "http://api/v1/ledger",
    ]
    assert {request.headers["authorization"] for request in seen} == {"Bearer tf_1_s"}


def test_launch_words() -> None:
    words = ["--server.port", "1", "--api-url", "http://h:1/", "--token-file", "t", "--demo"]
    assert read_launch(words) == Launch("http://h:1", Path("t"), True)
    assert read_launch([]) == Launch()
