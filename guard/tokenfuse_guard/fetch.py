"""Two background threads, off the request path: one long-polls the policy, one reports what the guard did."""

from __future__ import annotations

import http.client
import json
import threading
from typing import Any, Callable

from tokenfuse_guard.entries import JITTER
from tokenfuse_guard.guard import Guard
from tokenfuse_guard.policy import PolicyError
from tokenfuse_guard.wire import Answer, call

FIRST_BACKOFF_S = 0.5
MAX_BACKOFF_S = 30.0
CALL_TIMEOUT_S = 10.0
HEARTBEAT_S = 60.0
FAILURES = (OSError, http.client.HTTPException, ValueError)


def backoff_s(failures: int) -> float:
    """Full jitter on 0.5, 1, 2 … 30 s, so that guards do not return all at once; at least a tenth."""
    most = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** min(failures - 1, 10))
    return most * (0.1 + 0.9 * JITTER.random())


class Fetcher:
    """Keeps one guard's policy fresh and reports for it. ``more`` adds fields of other parts (the usage sender) to the report."""

    def __init__(self, guard: Guard, more: Callable[[], dict[str, Any]] | None = None) -> None:
        self._guard = guard
        self._more = more
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._etag = ""

    def start(self) -> None:
        """Start both threads (daemons); a second call does nothing."""
        if self._threads or not self._guard.settings.url:
            return
        for name, work in (("tokenfuse-policy", self._keep_fetching), ("tokenfuse-report", self._keep_reporting)):
            thread = threading.Thread(target=work, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Ask both threads to end, and send what is left to report."""
        self._stop.set()
        if self._threads:
            self.send_report()

    def _keep_fetching(self) -> None:
        failures = 0
        while not self._stop.is_set():
            failures = 0 if self.fetch_once() else failures + 1
            if failures:
                self._stop.wait(backoff_s(failures))

    def fetch_once(self) -> bool:
        """One long poll: True when a policy was taken or nothing is newer."""
        settings, policy = self._guard.settings, self._guard.policy
        if policy is not None and policy.expires_at_s <= self._guard.now_s():
            self._etag = ""
        headers = {"If-None-Match": self._etag} if self._etag else {}
        wait_s = settings.wait_s if self._etag else 0
        url = f"{settings.url}/v1/policy?wait={wait_s:g}"
        try:
            answer = call("GET", url, settings.token, headers=headers, timeout_s=wait_s + CALL_TIMEOUT_S)
            return self._took(answer)
        except PolicyError as error:
            self._guard.trouble(f"policy refused ({error.code}): {error}")
        except FAILURES as error:
            self._guard.trouble(f"policy not fetched: {error}")
        return False

    def _took(self, answer: Answer) -> bool:
        if answer.status == 304:
            return True
        if answer.status != 200:
            raise ValueError(f"the centre answered {answer.status}")
        self._guard.take(json.loads(answer.body))
        self._etag = answer.headers.get("etag", "")
        return bool(self._etag)

    def _keep_reporting(self) -> None:
        quiet_s = 0.0
        every_s = max(0.1, self._guard.settings.report_every_s)
        while not self._stop.wait(every_s * (0.75 + 0.5 * JITTER.random())):
            quiet_s += every_s
            if self.send_report(only_if_needed=quiet_s < HEARTBEAT_S):
                quiet_s = 0.0

    def send_report(self, *, only_if_needed: bool = False) -> bool:
        """Send one report; what did not arrive is counted into the next. True when one was sent."""
        guard, settings = self._guard, self._guard.settings
        report = guard.report()
        body = {**report, **(self._more() if self._more is not None else {})}
        if only_if_needed and not _worth_sending(body):
            guard.counts.restore(report)
            return False
        try:
            raw = json.dumps(body).encode()
            headers = {"Content-Type": "application/json"}
            answer = call(
                "POST", f"{settings.url}/v1/guards/report", settings.token, body=raw, headers=headers, timeout_s=CALL_TIMEOUT_S
            )
            if answer.status < 300:
                guard.fault = ""
                return True
            guard.trouble(f"report not taken: the centre answered {answer.status}")
        except FAILURES as error:
            guard.trouble(f"report not sent: {error}")
        guard.counts.restore(report)
        return False


def _worth_sending(body: dict[str, Any]) -> bool:
    return bool(body["entries"] or body["refused"] or body["dropped"] or body["expired"] or body["break_glass"] or body["note"])
