"""Why engines and gateways disagree: each public fault with its right value, and parts that add up whatever comes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.reconcile import KNOWN, EngineView, Evidence, GatewayView, Reconciled, minute_edge, reconcile


def parts(found: Reconciled) -> dict[str, tuple[int | None, int | None]]:
    return {reason.name: (reason.tokens_in, reason.tokens_out) for reason in found.reasons}


FAULTS: list[Any] = [
    pytest.param(
        EngineView(150, 2700, 150, 2700, requests=3),
        GatewayView(109, 1803, ok_requests=3, estimated_requests=1, estimated_in=9, estimated_out=3, ok_estimated=1),
        {"estimated_stream": (41, 897)},
        id="B01 a stream without usage is booked from a guess: 897 output tokens short",
    ),
    pytest.param(
        EngineView(11480, 0, 2480, 0, requests=10),
        GatewayView(2480, 0, ok_requests=10),
        {"unfinished": (9000, 0)},
        id="B14 aborted requests are in the counters and in no histogram",
    ),
    pytest.param(
        EngineView(472, 8, 472, 8, requests=1),
        GatewayView(59, 8, ok_requests=1, repeated=413),
        {"parallel_answers": (413, 0)},
        id="B15 n=8 counts a prompt of 59 as 472",
    ),
    pytest.param(
        EngineView(2000, 201, 2000, 201, requests=2, external=1000, prefill_answers=1),
        GatewayView(1000, 200, ok_requests=1),
        {"prefill_decode_split": (1000, 1)},
        id="B29 prefill and decode engine both count the prompt, prefill emits a token nobody is sold",
    ),
    pytest.param(
        EngineView(5000, 500, 5000, 500, requests=9),
        GatewayView(3000, 300, ok_requests=5),
        {"unattributed": (2000, 200)},
        id="a bypass: four requests the gateway never saw",
    ),
    pytest.param(
        EngineView(5000, 500, 5000, 500, requests=9),
        GatewayView(3000, 300, ok_requests=5, estimated_requests=1, ok_estimated=1),
        {"unattributed": (2000, 200), "estimated_stream": (None, None)},
        id="a bypass beside an estimate stays unknown",
    ),
    pytest.param(
        EngineView(300, 30),
        GatewayView(100, 10, ok_requests=1, failed_requests=1, missing_requests=1),
        {"unattributed": (200, 20), "missing_usage": (None, None)},
        id="pages without histograms: aborted or bypass cannot be told",
    ),
    pytest.param(
        EngineView(300, 30, 300, 30, requests=2),
        GatewayView(100, 10, ok_requests=2, missing_requests=1, ok_missing=1),
        {"missing_usage": (200, 20)},
        id="an answered request without counts",
    ),
    pytest.param(
        EngineView(300, 30, 300, 30, requests=3),
        GatewayView(100, 10, ok_requests=3, missing_requests=1, ok_missing=1, estimated_requests=1, ok_estimated=1),
        {"estimated_or_missing": (200, 20), "estimated_stream": (None, None), "missing_usage": (None, None)},
        id="which of two inexact rows cannot be told",
    ),
    pytest.param(
        EngineView(900, 90, 600, 60, requests=6),
        GatewayView(900, 90, ok_requests=9),
        {},
        id="requests still running at the window's end explain nothing and are no fault",
    ),
    pytest.param(
        EngineView(100, 10, 100, 10, requests=1, resets=1),
        GatewayView(400, 40, ok_requests=4),
        {"engine_reset": (-250, -25), "over_explained": (-50, -5)},
        id="what an engine did between its last page and its end is lost",
    ),
    pytest.param(
        EngineView(100, 10, 100, 10, requests=1),
        GatewayView(120, 15, ok_requests=1, estimated_requests=1, ok_estimated=1, estimated_in=120, estimated_out=15),
        {"estimated_stream": (-20, -5)},
        id="an estimate that is too high",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("engine", "gateway", "named"), FAULTS)
def test_faults_have_their_right_name_and_value(
    engine: EngineView, gateway: GatewayView, named: dict[str, tuple[int | None, int | None]]
) -> None:
    evidence = Evidence(reset_in=250, reset_out=25) if engine.resets else Evidence()
    assert parts(reconcile(engine, gateway, evidence)) == named


def test_without_an_engine_nothing_is_said_of_the_difference() -> None:
    found = reconcile(None, GatewayView(5, 1, ok_requests=1))
    assert (found.difference_in, found.difference_out) == (None, None)
    assert parts(found) == {"no_engine_samples": (None, None)}


def test_work_of_minutes_without_a_page_is_named_so_and_does_not_hide_aborts() -> None:
    engine = EngineView(1000, 100, 900, 90, requests=9)
    found = reconcile(engine, GatewayView(1400, 140, ok_requests=14), Evidence(unseen_in=500, unseen_out=50))
    assert parts(found) == {"engine_unseen": (-500, -50), "unfinished": (100, 10)}


def test_a_call_booked_after_the_hour_moves_to_where_the_engine_did_it() -> None:
    """One buffered call of 800/40 runs 11:59:50 to 12:00:10: the gateway books all of it at its end."""
    before = reconcile(EngineView(1800, 120, 1000, 80, requests=5), GatewayView(1000, 80, ok_requests=5), Evidence(800, 40))
    after = reconcile(EngineView(200, 20, 1000, 60, requests=2), GatewayView(1000, 60, ok_requests=2), Evidence(-800, -40))
    assert parts(before) == {"timing_edge": (800, 40)}
    assert parts(after) == {"timing_edge": (-800, -40)}


@pytest.mark.parametrize(("before", "after", "crossed"), [(800, -900, 800), (-30, 20, -20), (50, 60, 0), (-1, -1, 0), (0, 5, 0)])
def test_tokens_cross_a_border_only_where_its_sides_disagree(before: int, after: int, crossed: int) -> None:
    assert minute_edge(before, after) == crossed
    assert minute_edge(after, before) == -crossed


count = st.integers(0, 10_000)


@st.composite
def views(draw: st.DrawFn) -> tuple[EngineView, GatewayView, Evidence]:
    known = draw(st.booleans())
    prompt, generation = draw(count), draw(count)
    engine = EngineView(
        prompt, generation,
        draw(st.integers(0, prompt)) if known else None, draw(st.integers(0, generation)) if known else None,
        draw(st.none() | count), draw(count), draw(count), draw(st.integers(0, 3)), draw(count),
    )  # fmt: skip
    gateway = GatewayView(*(draw(count) for _ in range(14)))
    edges = [draw(st.integers(-10_000, 10_000)) for _ in range(2)]
    return engine, gateway, Evidence(*edges, *(draw(count) for _ in range(4)))


@given(views())
def test_the_parts_add_up_to_the_difference_whatever_comes(drawn: tuple[EngineView, GatewayView, Evidence]) -> None:
    engine, gateway, _evidence = drawn
    found = reconcile(*drawn)
    assert sum(r.tokens_in or 0 for r in found.reasons) == found.difference_in == engine.prompt - gateway.tokens_in
    assert sum(r.tokens_out or 0 for r in found.reasons) == found.difference_out == engine.generation - gateway.tokens_out
    assert len({r.name for r in found.reasons}) == len(found.reasons)
    assert all(r.known == KNOWN[r.name] for r in found.reasons)


@given(views())
def test_unknown_parts_have_one_sign(drawn: tuple[EngineView, GatewayView, Evidence]) -> None:
    named = parts(reconcile(*drawn))
    assert min(named.get("unattributed", (0, 0))) >= 0  # type: ignore[type-var,operator]
    assert max(named.get("over_explained", (0, 0))) <= 0  # type: ignore[type-var,operator]
