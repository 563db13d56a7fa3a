"""Answers of ``GET /v1/fleet/checks``, made by the checks themselves and put through the API's own schema."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sample_answers import Kind

from api.schemas.fleet_checks import FleetChecksOut
from core.fleet_checks import CHECKS, check_engine, check_gateway
from core.fleet_facts import EngineFacts, GatewayFacts, Seen


def fleet_checks(params: Mapping[str, str], kind: Kind, now: datetime) -> dict[str, Any]:
    """An engine started with --enforce-eager behind a gateway that tells nothing."""
    target = "http://vllm-0:8000/metrics"
    seen = {
        "enforce_eager": Seen("true", "arguments of pod ml/vllm-0"),
        "version": Seen("0.33.0", "GET http://vllm-0:8000/version"),
    }
    facts = EngineFacts(target, page=target, software="vllm", cores=1, has_start=True, seen=seen, gpu="H200", gpu_count=8)
    findings = [*check_engine(facts), *check_gateway(GatewayFacts("http://litellm:4000"))] if kind != "empty" else []
    rows = [
        {
            "subject": one.subject, "kind": one.kind, "check": one.check, "verdict": one.verdict, "seen": one.seen or None,
            "where": one.where or None, "reason": one.reason, "fix": one.fix or None, "what": CHECKS[one.check].what,
            "why": CHECKS[one.check].why,
        }
        for one in findings
    ]  # fmt: skip
    counts = {verdict: sum(one.verdict == verdict for one in findings) for verdict in ("pass", "fail", "unknown")}
    body = {"rows": rows, "total_rows": len(rows), "counts": counts, "checked_at": now if rows else None}
    answer: dict[str, Any] = FleetChecksOut.model_validate(body).model_dump(mode="json")
    return answer
