"""Signing in: what a token must be, how long it is remembered, and what becomes of those who keep failing."""

import logging

import pytest

from api.auth import Authenticator, bearer
from api.errors import TooMany, Unauthenticated
from models.access_repo import Principal

GOOD = "tf_abc123_" + "s" * 43
BAD = "tf_abc123_" + "x" * 43


class Clock:
    def __init__(self) -> None:
        self.at_s = 1000.0

    def __call__(self) -> float:
        return self.at_s


class Directory:
    """The tokens there are, and how often it was asked."""

    def __init__(self) -> None:
        self.valid = {GOOD}
        self.asked = 0

    def __call__(self, text: str) -> Principal | None:
        self.asked += 1
        return Principal("abc123", "gateway", frozenset({"ingest"}), "") if text in self.valid else None


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def directory() -> Directory:
    return Directory()


@pytest.fixture
def auth(directory: Directory, clock: Clock) -> Authenticator:
    return Authenticator(directory, ttl_s=5, limit=3, clock=clock)


@pytest.mark.parametrize(
    ("header", "text"),
    [
        (f"Bearer {GOOD}", GOOD),
        (f"bearer  {GOOD} ", GOOD),
        (GOOD, None),
        (f"Basic {GOOD}", None),
        ("Bearer sk-123", None),
        (f"Bearer {GOOD}\x00", None),
        ("Bearer tf_a b_" + "s" * 43, None),
        ("", None),
        (None, None),
    ],
)
def test_only_what_looks_like_a_token_is_looked_up(header: str | None, text: str | None) -> None:
    assert bearer(header) == text


def test_a_verified_token_is_remembered_for_its_time_only(auth: Authenticator, directory: Directory, clock: Clock) -> None:
    auth.authenticate(f"Bearer {GOOD}", "10.0.0.1")
    assert auth.remembered(f"Bearer {GOOD}") is not None
    clock.at_s += 5
    assert auth.remembered(f"Bearer {GOOD}") is None
    directory.valid.clear()
    with pytest.raises(Unauthenticated):
        auth.authenticate(f"Bearer {GOOD}", "10.0.0.1")


def test_after_too_many_failures_an_address_waits_without_the_directory_being_asked(
    auth: Authenticator, directory: Directory, clock: Clock
) -> None:
    for _ in range(3):
        with pytest.raises(Unauthenticated):
            auth.authenticate(f"Bearer {BAD}", "10.0.0.1")
    asked = directory.asked
    with pytest.raises(TooMany) as caught:
        auth.authenticate(f"Bearer {BAD}", "10.0.0.1")
    assert directory.asked == asked
    assert caught.value.retry_after_s > 0
    clock.at_s += 61
    with pytest.raises(Unauthenticated):
        auth.authenticate(f"Bearer {BAD}", "10.0.0.1")


def test_a_noisy_neighbour_locks_out_nobody_who_was_in_before(auth: Authenticator, clock: Clock) -> None:
    auth.authenticate(f"Bearer {GOOD}", "10.0.0.1")
    for _ in range(3):
        with pytest.raises(Unauthenticated):
            auth.authenticate("nonsense", "10.0.0.1")
    clock.at_s += 6
    assert auth.authenticate(f"Bearer {GOOD}", "10.0.0.1").name == "gateway"


def test_a_refusal_is_logged_without_the_secret(auth: Authenticator, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), pytest.raises(Unauthenticated):
        auth.authenticate(f"Bearer {BAD}", "10.0.0.1")
    assert "abc123" in caplog.text
    assert "x" * 43 not in caplog.text
