"""Identity values as the API shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from control.identity_preview import PARTS, Preview
from core.identity import Resolved, RuleSet, RuleVersion, in_force
from core.identity_codec import encode_rules
from core.identity_moves import TOKEN_KINDS, Sum


def version_out(version: RuleVersion | None, versions: Sequence[RuleVersion], now: datetime) -> dict[str, Any]:
    """A version; None: that no rules are there."""
    if version is None:
        none = {"version": 0, "valid_from": None, "created_at": None, "author": "", "reason": "", "digest": ""}
        return {**none, "in_force": in_force(versions, now) is None, "rules": encode_rules(RuleSet(default=()))}
    shown = {name: getattr(version, name) for name in ("version", "valid_from", "created_at", "author", "reason", "digest")}
    return {**shown, "in_force": in_force(versions, now) == version, "rules": encode_rules(version.rules)}


def work_out(work: Sum) -> dict[str, Any]:
    tokens = {kind: work.tokens[kind] for kind in TOKEN_KINDS}
    return {"requests": work.requests, "tokens": tokens, "costs": dict(work.cost)}


def path_out(parts: Sequence[str]) -> dict[str, str] | None:
    return dict(zip(PARTS, parts, strict=True)) if parts else None


def preview_out(found: Preview) -> dict[str, Any]:
    moves = [
        {"source": path_out(move.source), "target": path_out(move.target), "work": work_out(move.work)} for move in found.moves
    ]
    return {
        "window_start": found.window.start, "window_end": found.window.end, "basis": found.basis,
        **{name: work_out(getattr(found, name)) for name in ("total", "moved", "kept", "unmatched")},
        "moves": moves, "by_rule": dict(found.by_rule), "cost_reason": found.cost_reason,
        "uncounted_costs": dict(found.uncounted_cost),
    }  # fmt: skip


def resolved_out(found: Resolved) -> dict[str, Any]:
    t = found.tenant
    return {
        "result": path_out((t.org, t.team, t.project, t.user, found.service_tier)),
        "key_id": t.key_id,
        "matched": list(found.matched),
        "by_default": list(found.by_default),
        "steps": [asdict(step) for step in found.steps],
    }
