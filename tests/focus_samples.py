"""Origins with every kind of ledger line, as strategies and as one fixed sample."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from hypothesis import strategies as st

from core.focus_rows import Issuer, Origin, Part, Row, allocated_rows, origin_row
from core.money import split, total
from core.usage import Deployment
from core.windows import Window

ISSUER = Issuer("Self-hosted inference", "acme")
START = datetime(2026, 6, 30, 23, tzinfo=UTC)
TOKEN_KINDS = ("input", "input_cached", "output")
KINDS = (
    *((kind, token) for kind in ("served", "wasted", "unattributed") for token in TOKEN_KINDS),
    ("idle", ""),
    ("starting", ""),
)
names = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=12)
costs = st.decimals("0", "1e9", places=12)


@st.composite
def parts(draw: st.DrawFn) -> Part:
    kind, token_kind = draw(st.sampled_from(KINDS))
    tokens = draw(st.integers(0, 10**15)) if token_kind else 0
    cost, requests = draw(costs), draw(st.integers(0, 10**9))
    if kind not in ("served", "wasted"):
        return Part(kind, token_kind, tokens, 0, cost, Decimal(0))
    whose = {"org": draw(names), "team": draw(st.just("") | names), "project": draw(st.just("") | names)}
    return Part(kind, token_kind, tokens, requests, cost, Decimal(0), **whose, user=draw(st.just("") | names), service_tier="P1")


@st.composite
def origins(draw: st.DrawFn) -> tuple[Origin, list[Part]]:
    """A closed hour: the parts' costs add up to the origin's, and so do their shares of it with idle time borne."""
    found = draw(st.lists(parts(), min_size=1, max_size=8))
    whole = total(part.cost for part in found)
    weights = {n: part.cost for n, part in enumerate(found) if part.cost}
    shares = split(whole, weights) if weights else {}
    found = [
        Part(p.kind, p.token_kind, p.tokens, p.requests, p.cost, shares.get(n, Decimal(0)), p.org, p.team, p.project, p.user)
        for n, p in enumerate(found)
    ]
    used = draw(st.none() | st.just(whole))
    place = Deployment(draw(names | st.just("vendor")), draw(names), draw(names))
    window = Window(START, START + timedelta(hours=1))
    basis = draw(st.sampled_from(["list", "effective", "effective; list", ""]))
    gpu_us = draw(st.integers(1, 10**15))
    counts = [draw(st.integers(0, 10**12)) for _ in range(4)]
    return Origin(window, place, "USD", whole, used, gpu_us, ("H100",), basis, "card", "", "", "provisional", *counts), found


def rows(origin: Origin, found: Sequence[Part], invoice_id: str | None = None) -> list[Row]:
    return [origin_row(origin, found, ISSUER, invoice_id), *allocated_rows(origin, found, ISSUER, invoice_id)]


def sample_rows() -> list[Row]:
    """One of each kind of line of two deployments, for three tenants, one of them under a final invoice."""
    made: list[Row] = []
    for hour, model in enumerate(("chat", "code")):
        window = Window(START - timedelta(hours=hour), START + timedelta(hours=1 - hour))
        found = [
            Part(kind, token, 1_000_000 + n if token else 0, n, Decimal(n) / 8, Decimal(n) / 8, *whose)
            for n, (kind, token) in enumerate(KINDS, 1)
            for whose in (("acme", "chat"), ("acme", ""), ("", ""))
        ]
        cost = total(part.cost for part in found)
        place = Deployment("lab", "prod", model)
        origin = Origin(window, place, "USD", cost, cost / 2, 8 * 3_600_000_000, ("H100",), "list", "card (list)", "dcgm", "fit")
        made += rows(origin, found)
    return made
