"""One process's guard: holds the policy in force, decides on requests, counts what it did. No network here (see ``fetch``)."""

from __future__ import annotations

import logging
import os
import time
from typing import Any, Callable, NamedTuple

from tokenfuse_guard.counts import Counts
from tokenfuse_guard.entries import NO_MATCH, PASS, Decision, Match, Refusal, RequestFacts
from tokenfuse_guard.identity_rules import IdentityRules, UnknownRules
from tokenfuse_guard.meters import NO_HOLD, Hold, Meters
from tokenfuse_guard.policy import Policy, PolicyError, verify
from tokenfuse_guard.settings import GuardSettings
from tokenfuse_guard.store import BREAK_GLASS_FILE, RULES_FILE, BreakGlass, load_document, read_break_glass, save_document

LOG = logging.getLogger("tokenfuse.guard")
LOOK_EVERY_S = 1.0
SAY_EVERY_S = 60.0
CLOSED_RETRY_S = 30


class Posture(NamedTuple):
    """``obey`` the policy, or else refuse everything with ``refusal``, or pass everything (no refusal).
    ``note`` goes into the header ``x-tokenfuse-policy`` of passed answers."""

    obey: bool
    refusal: Refusal | None
    note: str


OBEY = Posture(True, None, "")


class Guard:
    """Thread-safe: the fetcher's thread replaces the policy, requests read it."""

    def __init__(self, settings: GuardSettings, now_s: Callable[[], float] = time.time) -> None:
        self.settings = settings
        self.now_s = now_s
        self.policy: Policy | None = None
        self.rules: IdentityRules | None = None
        self.rules_fault = ""
        self._rules_document: Any = None
        self.counts = Counts(now_s())
        self.meters = Meters(settings.long_prompt_tokens)
        self.break_glass: BreakGlass | None = None
        self.fault = ""
        self._glass_file = settings.break_glass_file or (
            os.path.join(settings.state_dir, BREAK_GLASS_FILE) if settings.state_dir else ""
        )
        self._look_at_s = 0.0
        self._say_at_s = 0.0
        self._load()

    def _load(self) -> None:
        """Obey what was held before a restart; the held version stays the floor even when it has expired."""
        if not self.settings.state_dir:
            return
        try:
            document = load_document(self.settings.state_dir)
            if document is not None:
                self.policy = verify(document, self.settings.keys, self.settings.name, 0, None)
                self._take_rules(self.policy, document)
                if self.rules_fault:
                    self._load_rules()
        except (PolicyError, OSError) as error:
            self.trouble(f"kept policy not used: {error}")

    def _load_rules(self) -> None:
        """The identity rules that were in use before the kept policy came, which holds some this guard does not know."""
        document = load_document(self.settings.state_dir, RULES_FILE)
        if document is None:
            return
        policy = verify(document, self.settings.keys, self.settings.name, 0, None)
        if policy.identity is not None:
            self.rules, self._rules_document = IdentityRules(policy.identity), document

    def take(self, document: Any) -> Policy:
        """Verify a fetched document, keep it on disk and obey it. Raises PolicyError, and goes on with the old one."""
        held = 0 if self.policy is None else self.policy.version
        policy = verify(document, self.settings.keys, self.settings.name, held, self.now_s())
        self._take_rules(policy, document)
        if self.settings.state_dir:
            try:
                if self.rules_fault and self._rules_document is not None:
                    save_document(self.settings.state_dir, self._rules_document, RULES_FILE)
                save_document(self.settings.state_dir, document)
            except OSError as error:
                self.trouble(f"policy not kept on disk: {error}")
        self.policy = policy
        if policy.unknown:
            self.trouble(f"{policy.unknown} entries with actions this guard does not know were left out")
        return policy

    def _take_rules(self, policy: Policy, document: Any) -> None:
        """Use the policy's identity rules; when it holds some this guard does not know, go on with those in use, and say so."""
        try:
            if policy.identity is None:
                self.rules = None
            elif self.rules is None or self.rules.raw != policy.identity:
                self.rules = IdentityRules(policy.identity)
            self.rules_fault, self._rules_document = "", document
        except UnknownRules as error:
            fault = f"identity rules not known to this guard, the former ones are kept: {error}"
            if fault != self.rules_fault:
                self.trouble(fault)
            self.rules_fault = fault

    def trouble(self, message: str) -> None:
        """Something a person should know: logged, and the newest goes into the report."""
        self.fault = message
        LOG.warning("%s", message)

    def posture(self) -> Posture:
        """Obey, pass or refuse everything right now."""
        now_s = self.now_s()
        if now_s >= self._look_at_s:
            self._look(now_s)
        if self.break_glass is not None:
            return Posture(False, None, "break-glass")
        policy = self.policy
        if policy is not None and now_s < policy.expires_at_s:
            return OBEY
        return self._without(policy, now_s)

    def _look(self, now_s: float) -> None:
        """Once a second: is there a break-glass file, and is it still good?"""
        self._look_at_s = now_s + LOOK_EVERY_S
        if not self._glass_file:
            return
        try:
            found = read_break_glass(self._glass_file)
        except (ValueError, OSError) as error:
            found = None
            self._say(f"break-glass file not used: {error}", now_s)
        glass = found if found is not None and found.until_s > now_s else None
        if glass is not None and self.break_glass is None:
            LOG.warning("break-glass: everything passes until %s: %s", glass.until, glass.reason)
        self.break_glass = glass

    def _without(self, policy: Policy | None, now_s: float) -> Posture:
        """No policy in force: open or closed, as configured."""
        code = "no_policy" if policy is None else "policy_expired"
        mode = self.settings.on_expiry or (policy.on_expiry if policy is not None else "open")
        held = "" if policy is None else f"; version={policy.version}"
        self._say(f"{code}{held}: failing {mode} until a policy is fetched", now_s)
        if mode == "open":
            return Posture(False, None, f"{code}; open{held}")
        message = "Tokenfuse: no cost policy is in force, and this guard is told to refuse then"
        return Posture(False, Refusal(code, message, None, CLOSED_RETRY_S), "")

    def _say(self, message: str, now_s: float) -> None:
        if now_s >= self._say_at_s:
            self._say_at_s = now_s + SAY_EVERY_S
            self.trouble(message)

    def match(self, facts: RequestFacts) -> Match:
        policy = self.policy
        return NO_MATCH if policy is None else policy.match(facts)

    def decide(self, match: Match, facts: RequestFacts, *, can_truncate: bool = False) -> tuple[Decision, Hold]:
        """The decision, counted; and what the request holds until ``meters.settle`` when it passes."""
        policy = self.policy
        decision = PASS if policy is None else policy.decide(match, facts, can_truncate=can_truncate)
        hold = NO_HOLD
        if match.meters and decision.refusal is None:
            admission = self.meters.admit(match, facts, self.now_s())
            hold = admission.hold
            decision = decision._replace(refusal=admission.refusal, notes=decision.notes + admission.notes)
        self.counts.note(decision.notes, decision.refusal is not None, self.now_s())
        return decision, hold

    def count_posture(self, posture: Posture) -> None:
        """A request that was passed or refused without looking at entries."""
        self.counts.add("passed" if posture.refusal is None else "refused")

    def report(self) -> dict[str, Any]:
        """The body of ``POST /v1/guards/report``: counts since the last one, and how the guard stands."""
        now_s = self.now_s()
        policy = self.policy
        expired = policy is not None and now_s >= policy.expires_at_s
        glass = self.break_glass
        found = self.counts.drain(now_s)
        found["policy_version"] = None if policy is None else policy.version
        found["expired"] = expired
        found["break_glass"] = None if glass is None else {"until": glass.until, "reason": glass.reason}
        rules = None if self.rules is None else self.rules.at(now_s)
        found["rules_version"] = None if rules is None else rules.version
        found["rules_fault"] = _printable(self.rules_fault)
        found["note"] = _printable(self.fault)
        return found


def _printable(text: str) -> str:
    return "".join(c for c in text if c.isprintable())[:120]
