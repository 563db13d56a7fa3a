"""A generated month of requests for the demo. Every figure that shapes it was measured on a public trace, named beside it;
the joining of them is ours, and the records say so (organisation ``demo``, raw ``{"generated": true}``)."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from core.tokens import TokenCounts
from core.usage import Deployment, ServiceTier, TenantPath, UsageRecord

LONG_POOL = Deployment("demo", "inference", "qwen3-32b")
CHAT_POOL = Deployment("demo", "inference", "llama-3.1-8b")
MAX_CONTEXT = 131_072
FAILED_SHARE = 0.0178
"""BurstGPT_1: 25,443 of 1,429,737 rows have no response tokens."""


@dataclass(frozen=True, slots=True)
class Profile:
    """One team's requests: share of all, log-normal input and output lengths (median and 99th percentile), cached share."""

    team: str
    share: float
    input_p50: int
    input_p99: int
    output_p50: int
    output_p99: int
    cached: float
    deployment: Deployment
    tier: ServiceTier = "P1"
    night: bool = False


PROFILES: tuple[Profile, ...] = (
    Profile("code-assist", 0.24, 1469, 7436, 13, 251, 0.20, CHAT_POOL, "P0"),  # Azure 2023 code
    Profile("search-rag", 0.20, 7590, 91_229, 356, 1135, 0.346, LONG_POOL),  # Mooncake conversation, cached share too
    Profile("mobile-chat", 0.18, 40, 902, 211, 785, 0.10, CHAT_POOL, "P0"),  # Chatbot Arena
    Profile("support-bot", 0.16, 842, 3600, 80, 690, 0.30, CHAT_POOL),  # ServeGen client medians
    Profile("agent-dev", 0.04, 60_000, 125_000, 215, 3625, 0.964, LONG_POOL),  # Claude Code sessions, cut at the context limit
    Profile("batch-tagging", 0.13, 842, 3600, 80, 300, 0.05, CHAT_POOL, "P2", night=True),  # ServeGen client medians
    Profile("contract-review", 0.05, 4216, 14_000, 120, 800, 0.10, LONG_POOL),  # our own recording
)
INCIDENT_REQUESTS = 47
"""The incident Tokenfuse comes from: 47 contract parses of over 32K tokens in one day."""


@dataclass(frozen=True, slots=True)
class Month:
    """What to generate: [start, end), mean requests a day, and the day of the contract burst (days before ``end``)."""

    start: datetime
    end: datetime
    requests_per_day: int = 2400
    incident_days_before_end: int = 3
    seed: int = 20261130


def requests(month: Month) -> Iterator[list[UsageRecord]]:
    """One list of records per hour, in time order of their start."""
    rng = random.Random(month.seed)
    at, number = month.start, 0
    incident_day = (month.end - timedelta(days=month.incident_days_before_end)).date()
    while at < month.end:
        hour: list[UsageRecord] = []
        for profile in PROFILES:
            mean = month.requests_per_day / 24 * profile.share * _shape(at, profile.night)
            for _ in range(_poisson(rng, mean)):
                number += 1
                hour.append(_request(rng, profile, at + timedelta(seconds=rng.uniform(0, 3599)), number))
        if at.date() == incident_day and 9 <= at.hour < 17:
            for _ in range(
                math.ceil(INCIDENT_REQUESTS / 8) if at.hour < 16 else INCIDENT_REQUESTS - 7 * math.ceil(INCIDENT_REQUESTS / 8)
            ):
                number += 1
                hour.append(_contract(rng, at + timedelta(seconds=rng.uniform(0, 3599)), number))
        yield sorted((r for r in hour if r.finished_at <= month.end), key=lambda r: r.started_at)
        at += timedelta(hours=1)


def _shape(at: datetime, night: bool) -> float:
    """Load against the weekly mean: a weekday has a working-hours hill, a weekend 40 % of it; batch work runs at night."""
    if night:
        return 3.0 if at.hour < 6 else 0.33
    hill = 0.35 + 1.5 * math.exp(-(((at.hour - 13.5) / 4.2) ** 2))
    return hill * (0.4 if at.weekday() >= 5 else 1.2)


def _poisson(rng: random.Random, mean: float) -> int:
    count, product, limit = 0, rng.random(), math.exp(-min(mean, 500))
    while product > limit:
        count += 1
        product *= rng.random()
    return count


def _length(rng: random.Random, p50: int, p99: int, most: int) -> int:
    sigma = math.log(p99 / p50) / 2.326
    return max(1, min(most, round(p50 * math.exp(rng.gauss(0, sigma)))))


def _request(rng: random.Random, profile: Profile, start: datetime, number: int) -> UsageRecord:
    prompt = _length(rng, profile.input_p50, profile.input_p99, MAX_CONTEXT - 4096)
    output = _length(rng, profile.output_p50, profile.output_p99, 4096)
    cached = int(prompt * profile.cached * rng.uniform(0.6, 1.2)) // 16 * 16
    cached = min(cached, prompt - 1)
    failed = rng.random() < FAILED_SHARE
    user = f"user-{min(12, int(rng.paretovariate(1.1)))}"
    return _record(rng, profile, start, number, user, prompt, cached, output, failed)


def _contract(rng: random.Random, start: datetime, number: int) -> UsageRecord:
    profile = PROFILES[-1]
    prompt = rng.randrange(32_800, 120_000)
    return _record(rng, profile, start, number, "contract-parser", prompt, 0, rng.randrange(600, 2400), failed=False)


def _record(
    rng: random.Random,
    profile: Profile,
    start: datetime,
    number: int,
    user: str,
    prompt: int,
    cached: int,
    output: int,
    failed: bool,
) -> UsageRecord:
    prefill_s = 0.05 + (prompt - cached) / 9000
    first = start + timedelta(milliseconds=round(1000 * prefill_s * rng.uniform(0.9, 1.4)))
    end = first + timedelta(milliseconds=round(output * rng.uniform(18, 30)))
    streamed_blind = rng.random() < 0.04
    return UsageRecord(
        request_id=f"demo-{number:07d}",
        started_at=_ms(start),
        first_token_at=None if failed else _ms(first),
        finished_at=_ms(first if failed else end),
        deployment=profile.deployment,
        tenant=TenantPath("demo", profile.team, "", user, f"key-{profile.team}"),
        tokens=TokenCounts() if failed else TokenCounts.from_inclusive(prompt, output, cache_read=cached),
        requested_model=profile.deployment.model_id,
        usage_source="missing" if failed else "estimated" if streamed_blind else "exact",
        status="error" if failed else "ok",
        service_tier=profile.tier,
        http_status=500 if failed else 200,
        finish_reason="" if failed else "stop",
        stream=not profile.night,
        raw={"generated": True},
    )


def _ms(at: datetime) -> datetime:
    return at.replace(microsecond=at.microsecond // 1000 * 1000)
