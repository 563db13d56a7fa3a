"""The Data quality page with data, without, with unknown money, with the API down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from pages_world import NOW, FakeClient
from sample_quality import coverages, qualities
from streamlit.testing.v1 import AppTest

from core.reconcile import KNOWN
from ui.client import ApiProblem
from ui.view_models.data_quality import (
    REASONS,
    coverage_table,
    difference_table,
    fault_table,
    kind_table,
    overlap_words,
    quality_cards,
    reason_table,
    refused_table,
)
from ui.view_models.figures import UNKNOWN

Open = Callable[..., AppTest]


def _texts(app: AppTest) -> str:
    parts = [*app.caption, *app.markdown, *app.info, *app.success, *app.error, *app.warning, *app.subheader]
    return "\n".join(str(part.value) for part in parts)


def _down(what: str, params: Mapping[str, str]) -> dict[str, Any]:
    raise ApiProblem("The Tokenfuse API cannot be reached.", hint="Is it running?")


def test_the_page_with_data(open_app: Open) -> None:
    app = open_app(FakeClient(), "data_quality", query={"range": "7d"})
    assert not app.exception
    cards = {card.label: card.value for card in app.metric}
    assert cards["Lowest coverage"] == "77.8 %"
    assert cards["Money resting on faults"] == "301.21 USD"
    assert cards["Rollups against the archive"] == "1 day differs"
    assert len(app.dataframe) == 6
    assert "32.97 USD rests on several kinds at once" in _texts(app)


def test_without_data_the_page_says_so(open_app: Open) -> None:
    app = open_app(FakeClient("empty"), "data_quality")
    assert not app.exception
    assert "No fault was found" in _texts(app)
    assert {card.label: card.value for card in app.metric}["Lowest coverage"] == UNKNOWN


def test_money_that_is_not_known_is_unknown_and_says_why(open_app: Open) -> None:
    app = open_app(FakeClient("partial"), "data_quality")
    assert not app.exception
    assert {card.label: card.value for card in app.metric}["Money resting on faults"] == UNKNOWN
    assert "not known: no closed, priced quarter hour is touched" in list(app.dataframe[0].value["What the money is"])


def test_with_the_api_down_the_page_says_so_and_offers_another_try(open_app: Open) -> None:
    app = open_app(FakeClient(answer=_down), "data_quality")
    assert not app.exception
    assert "cannot be reached" in app.error[0].value
    assert app.button(key="retry")


def test_every_reason_has_words_and_the_amounts_add_up() -> None:
    assert set(REASONS) == set(KNOWN)
    rows = coverages({}, "data", NOW)["rows"]
    shown = reason_table(rows).rows
    for row in rows[:2]:
        mine = [cells for cells in shown if cells["Deployment"] == row["deployment"]]
        assert sum(int(str(cells["Input tokens"] or 0)) for cells in mine) == row["difference_in"]
        assert sum(int(str(cells["Output tokens"] or 0)) for cells in mine) == row["difference_out"]
    assert coverage_table(rows).rows[-1]["Coverage"] is None
    assert any("155 s" in str(cells["How it is known"]) for cells in shown)


def test_the_dearest_kind_comes_first_and_each_says_what_to_do() -> None:
    answer = qualities({}, "data", NOW)
    shown = kind_table(answer["kinds"])
    assert shown.rows[0]["Money, USD"] == Decimal("184.20")
    assert shown.rows[4]["Money, USD"] is None
    assert all(row["What to do"] and row["What the money is"] for row in shown.rows)
    assert overlap_words(answer["money"])[0].endswith("together 301.21 USD.")
    assert quality_cards(answer, [])[0].label == "Lowest coverage"


def test_details_keep_both_sums_and_reasons() -> None:
    answer = qualities({}, "data", NOW)
    (difference,) = difference_table(answer["standing"]["differences"]).rows
    assert (difference["Archive"], difference["By hour"]) == (91_000, 91_007)
    assert refused_table(answer["quarantined"]).rows[0]["Records"] == 18
    assert fault_table(answer["faults"]).rows[0]["Detail"] == "reason: ConnectError('refused')"
