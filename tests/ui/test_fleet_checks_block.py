"""The Fleet page's table of checks: fails first, with a line that mends them; nothing checked yet says so."""

from __future__ import annotations

from collections.abc import Callable

from pages_world import NOW, FakeClient
from sample_fleet_checks import fleet_checks
from streamlit.testing.v1 import AppTest

from ui.view_models.fleet_checks import checks_line, checks_table

Open = Callable[..., AppTest]


def test_the_fleet_page_shows_what_fails_first_and_how_to_mend_it(open_app: Open) -> None:
    app = open_app(FakeClient(), "fleet", query={"range": "24h"})
    assert not app.exception
    shown = app.dataframe[-1].value
    assert next(iter(shown["Verdict"])) == "Fail"
    assert "--enforce-eager" in next(iter(shown["Fix"]))
    assert any("doctor fleet` checks now" in caption.value for caption in app.caption)


def test_before_the_first_round_the_page_says_so(open_app: Open) -> None:
    app = open_app(FakeClient("empty"), "fleet")
    assert not app.exception
    assert any("checked yet" in caption.value for caption in app.caption)


def test_verdicts_stand_in_order_and_the_counts_are_those_of_the_round() -> None:
    answer = fleet_checks({}, "data", NOW)
    verdicts = [row["Verdict"] for row in checks_table(answer["rows"]).rows]
    assert verdicts == sorted(verdicts, key=["Fail", "Unknown", "Pass"].index)
    assert checks_line(answer).startswith("1 fail, ")
