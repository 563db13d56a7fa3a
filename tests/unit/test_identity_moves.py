"""What a rule change moves adds up: requests, tokens and every ledger line's cost, to the last decimal."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from spool_samples import spool
from usage_samples import usage_item

from control.identity_preview import collect
from core.identity import Resolved, RuleVersion
from core.identity_codec import decode_rules
from core.identity_moves import Charged, LineOf, Moves, Sum
from core.identity_state import IdentityState
from core.ports import LogBatch
from core.usage import Deployment, TenantPath
from core.usage_codec import decode_usage
from core.windows import Window
from eventlog.archive import archive_segments
from eventlog.manifest import epochs, segments
from ingest.usage.identity_map import IdentityMapper
from ingest.usage.rows import Prepared, prepare

D = Deployment("c", "n", "m")
DAY = Window(datetime(2026, 11, 30, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC))
names = st.sampled_from(["a", "b", ""])
charges = st.builds(Charged, st.builds(TenantPath, names, names), st.sampled_from(["P1", "P2"]))
counts = st.integers(0, 1000)
work = st.tuples(charges, charges, st.sampled_from(["ok", "error", "refused"]), st.integers(1, 50), counts, counts)
costs = st.decimals(Decimal("0.000000000001"), Decimal("99999"), places=12)


def moves_of(done: list[tuple[Charged, Charged, str, int, int, int]]) -> Moves:
    moves = Moves()
    for old, new, status, requests, tokens_in, tokens_out in done:
        one = Sum(requests, Counter(input=tokens_in, output=tokens_out))
        moves.add(D, old, Resolved(new.tenant, new.service_tier, ("r",) if new.tenant.org else ()), status, one)
    return moves


@given(
    st.lists(work, max_size=12),
    st.dictionaries(
        st.tuples(charges, st.sampled_from(["served", "wasted"]), st.sampled_from(["input", "output", ""])), costs, max_size=8
    ),
)
def test_parts_add_up_to_the_whole(done: list[Any], lines: dict[tuple[Charged, str, str], Decimal]) -> None:
    moves = moves_of(done)
    ledger = {LineOf(D, old, kind, token_kind): {"USD": cost} for (old, kind, token_kind), cost in lines.items()}
    left = moves.price(ledger)
    found = moves.pairs().values()
    assert sum(one.requests for one in found) == sum(item[3] for item in done)
    assert sum(one.tokens["input"] for one in found) == sum(item[4] for item in done)
    assert sum(one.tokens["output"] for one in found) == sum(item[5] for item in done)
    priced = sum((one.cost.get("USD", Decimal(0)) for one in found), Decimal(0))
    assert priced + left.get("USD", Decimal(0)) == sum(lines.values(), Decimal(0))
    assert moves.unmatched.requests == sum(item[3] for item in done if not item[1].tenant.org)


@given(st.lists(work, min_size=1, max_size=8), costs)
def test_splitting_a_tenant_leaves_the_sum(done: list[Any], cost: Decimal) -> None:
    """All of one old tenant's served work, however it is cut over new tenants, bears the old tenant's cost."""
    old = Charged(TenantPath("whole"), "P1")
    moves = moves_of([(old, new, "ok", *rest) for _, new, _, *rest in done])
    left = moves.price({LineOf(D, old, "served", "input"): {"USD": cost}})
    assert left == {}
    assert sum((one.cost.get("USD", Decimal(0)) for one in moves.pairs().values()), Decimal(0)) == cost


def test_the_cost_of_a_line_follows_the_tokens_of_its_kind() -> None:
    old, x, y = (Charged(TenantPath(org), "P1") for org in ("old", "x", "y"))
    moves = moves_of([(old, x, "ok", 1, 900, 10), (old, y, "ok", 9, 100, 10), (old, y, "error", 1, 500, 0)])
    lines = {("served", "input"): "10", ("served", "output"): "4", ("wasted", "input"): "1", ("served", ""): "5"}
    left = moves.price({LineOf(D, old, kind, token): {"USD": Decimal(cost)} for (kind, token), cost in lines.items()})
    found = {target[0]: one.cost["USD"] for (_, target), one in moves.pairs().items()}
    assert found == {"x": Decimal("11.5"), "y": Decimal("8.5")}
    assert left == {}


def archive(folder: Path, *rows: Prepared) -> None:
    log = spool(folder / "log")
    log.append("usage", LogBatch([row.line for row in rows], [row.record for row in rows]))
    log.close()
    for epoch in epochs(folder / "log", "usage"):
        archive_segments(folder, "usage", epoch, [one.segment for one in segments(folder / "log", "usage", epoch)])


def row(number: int, team: str, **changes: Any) -> Prepared:
    at = (DAY.start + timedelta(hours=10, seconds=number)).isoformat()
    tenant = {"org": "acme", "team": team, "project": "", "user": "", "key_id": "k"}
    return prepare(decode_usage(usage_item(number, tenant=tenant, started_at=at, first_token_at=at, finished_at=at) | changes))


SPLIT = {"default": {}, "rules": [
    {"name": "by tag", "when": [{"field": "tag.app", "op": "regex", "value": "(.+)"}], "set": {"project": "$1"}},
    {"name": "never", "when": [{"field": "org", "value": "nobody"}], "set": {"org": "x"}},
]}  # fmt: skip


def test_a_preview_reads_the_archive_and_counts_each_request_once(tmp_path: Path) -> None:
    tagged = {"raw": {"identity": {"tags": ["app:rag"]}}}
    rows = [row(1, "search"), row(2, "search", **tagged), row(3, "ads", **tagged), row(2, "search", **tagged)]
    archive(tmp_path, *rows)
    moves = collect(tmp_path, decode_rules(SPLIT), {}, DAY)
    found = {
        (source[:3], target[:3]): (one.requests, one.tokens["input"], one.tokens["output"])
        for (source, target), one in moves.pairs().items()
    }
    assert found == {
        (("acme", "search", ""), ("acme", "search", "")): (1, 101, 7),
        (("acme", "search", ""), ("acme", "search", "rag")): (1, 102, 7),
        (("acme", "ads", ""), ("acme", "ads", "rag")): (1, 103, 7),
    }
    assert moves.by_rule == {"by tag": 2}
    assert moves.unmatched.requests == 1
    assert collect(tmp_path, decode_rules(SPLIT), {}, Window(DAY.end, DAY.end + timedelta(days=1))).pairs() == {}


def test_a_preview_of_the_rules_that_mapped_the_records_moves_nothing(tmp_path: Path) -> None:
    """It judges what the sources said, which mapped records keep; so other rules can be tried on them too."""
    rules = decode_rules(SPLIT)
    state = IdentityState("1", (RuleVersion(1, DAY.start, "a", "r", DAY.start, rules),))
    mapper = IdentityMapper(lambda held: state, lambda: 0.0)
    tagged = {"raw": {"identity": {"tags": ["app:rag"]}}}
    mapped = [one for one in mapper.apply([row(1, "search"), row(2, "search", **tagged)]) if isinstance(one, Prepared)]
    archive(tmp_path, *mapped)
    same = collect(tmp_path, rules, {}, DAY)
    assert all(source == target for source, target in same.pairs())
    undone = collect(tmp_path, decode_rules({"default": {}}), {}, DAY)
    assert {(source[2], target[2]): one.requests for (source, target), one in undone.pairs().items()} == {
        ("", ""): 1,
        ("rag", ""): 1,
    }


def test_a_rule_that_matches_nothing_moves_nothing(tmp_path: Path) -> None:
    archive(tmp_path, row(1, "search"), row(2, "ads", status="error"))
    never = {"default": {}, "rules": [SPLIT["rules"][1]]}  # type: ignore[index]
    moves = collect(tmp_path, decode_rules(never), {}, DAY)
    assert all(source == target for source, target in moves.pairs())
    assert sum(one.requests for one in moves.pairs().values()) == 2


def test_an_empty_archive_gives_an_empty_preview(tmp_path: Path) -> None:
    assert collect(tmp_path, decode_rules(SPLIT), {}, DAY).pairs() == {}
