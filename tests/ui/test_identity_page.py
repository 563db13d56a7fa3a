"""The page of tenants and identity rules: what is listed, what an edited row means, and that nothing is published unseen."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_identity import RULES, IdentityClient, no_version, preview, tenants, version
from streamlit.testing.v1 import AppTest

from core.errors import BadInput
from ui.client import ApiProblem
from ui.view_models.identity import (
    client_words,
    digest,
    idle_rules,
    moves_table,
    rule_rows,
    rules_of,
    state_words,
    tenants_table,
    versions_table,
)

Open = Callable[..., AppTest]
PAGE = "settings_tenants"


def texts(app: AppTest) -> str:
    parts = [*app.caption, *app.markdown, *app.info, *app.error, *app.warning, *app.success, *app.subheader, *app.header]
    return "\n".join(str(part.value) for part in parts)


def test_the_page_lists_tenants_rules_and_versions(open_app: Open) -> None:
    client = IdentityClient()
    app = open_app(client, PAGE)
    assert not app.exception
    assert list(app.dataframe[0].value["Team"]) == ["搜索推荐", "search", ""]
    assert "Version 2, in force since 2026-11-17 09:00 UTC, by ann: reason 2" in texts(app)
    assert list(app.dataframe[-1].value["Version"]) == [2, 1]
    assert dict(client.asked)["tenants"]["by"] == "org,team"
    app.selectbox(key="by").set_value("key_id").run()
    assert dict(client.asked)["tenants"]["by"] == "org,team,key_id"
    assert "Name" in app.dataframe[0].value


@pytest.mark.parametrize("kind", ["empty", "partial"])
def test_without_tenants_or_prices_the_page_says_so(open_app: Open, kind: Any) -> None:
    app = open_app(IdentityClient(kind), PAGE)
    assert not app.exception
    if kind == "empty":
        assert "No tenant finished a request" in texts(app)
        assert "every source is taken at its word" in texts(app)
    else:
        assert "closed and priced" in " ".join(app.dataframe[0].value["Why a cost is empty"])


def test_nothing_is_published_without_a_change_a_preview_and_a_reason(open_app: Open) -> None:
    client = IdentityClient()
    app = open_app(client, PAGE)
    assert app.button(key="publish").disabled
    app.button(key="preview").click().run()
    app.text_input(key="reason_2").set_value("why").run()
    assert client.previewed == [{"rules": RULES}]
    assert app.button(key="publish").disabled, "the rules are the published ones"
    app.selectbox[2].set_value("empty").run()
    assert app.button(key="publish").disabled, "the preview was of other rules"
    app.button(key="preview").click().run()
    assert not app.button(key="publish").disabled
    app.text_input(key="reason_2").set_value("").run()
    assert app.button(key="publish").disabled
    app.text_input(key="reason_2").set_value("start from nothing").run()
    app.button(key="publish").click().run()
    assert client.published == [({"rules": {**RULES, "start": "empty"}, "reason": "start from nothing"}, 2)]
    assert "Published. Version 3" in texts(app)


def test_the_preview_names_rules_that_apply_to_nothing(open_app: Open) -> None:
    app = open_app(IdentityClient(), PAGE)
    app.button(key="preview").click().run()
    assert "apply to nothing in this time: 星辰" in texts(app)
    (moves,) = [frame.value for frame in app.dataframe if "From" in frame.value]
    assert list(moves["Requests"]) == [3, 2, 5, 10, 15, 12]


def test_a_publication_somebody_was_faster_with_is_said(open_app: Open) -> None:
    client = IdentityClient(refuses=ApiProblem("version 3 was published meanwhile", hint="read it"))
    app = open_app(client, PAGE)
    app.selectbox[2].set_value("empty").run()
    app.button(key="preview").click().run()
    app.text_input(key="reason_2").set_value("why").run()
    app.button(key="publish").click().run()
    assert "version 3 was published meanwhile" in texts(app)


def test_rules_as_rows_and_back_say_the_same() -> None:
    rows = rule_rows(version(2)["rules"])
    assert rows[0] == {
        "Order": 1, "Rule": "rag keys", "When": "key_alias =~ rag-([a-z]+) AND tag.env = prod", "Organisation": "", "Team": "$1",
        "Project": "rag", "User": "", "Tier": "P2", "Then": "go on",
    }  # fmt: skip
    assert rows[1]["User"] == '""'
    assert rules_of(rows, "said", "unassigned") == RULES
    assert digest(version(2)["rules"]) == digest(RULES)


def test_no_rules_are_one_blank_row_that_means_nothing() -> None:
    rows = rule_rows(no_version()["rules"])
    assert len(rows) == 1
    assert rules_of(rows, "said", "") == {"start": "said", "default": {}, "rules": []}


def test_fields_the_gateway_sets_are_kept_and_what_guards_leave_out_is_named() -> None:
    rows = rule_rows(RULES)
    assert "gateway_sets" not in rules_of(rows, "said", "")
    found = rules_of(rows, "said", "", " header.x-team, tag ,")
    assert found["gateway_sets"] == ["header.x-team", "tag"]
    one = {"name": "r", "when": [{"field": "header.x-team", "value": "a"}], "set": {"team": "x"}}
    assert client_words({"rules": [one]}) == ["r: header.x-team = a"]
    assert client_words({"rules": [one], "gateway_sets": ["header.x-team"]}) == []


def test_order_is_by_number_then_new_rows_and_cells_may_be_missing() -> None:
    row = {"When": "org = a", "Organisation": "x", "Team": None, "Project": float("nan")}
    rows = [
        {**row, "Rule": "c"},
        {**row, "Order": 2.0, "Rule": "b"},
        {**row, "Order": 1, "Rule": "a"},
        {"Order": None, "Rule": None},
    ]
    found = rules_of(rows, "said", "u")
    assert [rule["name"] for rule in found["rules"]] == ["a", "b", "c"]
    assert found["rules"][0]["set"] == {"org": "x"}
    assert rules_of([row], "said", "")["rules"][0]["name"] == "rule 1"


@pytest.mark.parametrize(
    ("row", "place"),
    [
        ({"Rule": "a", "When": "org", "Organisation": "x"}, "row 1, When"),
        ({"Rule": "a", "When": "colour = x", "Organisation": "x"}, "row 1, When"),
        ({"Rule": "a", "When": "org = x"}, "row 1, When"),
        ({"Rule": "a", "When": "org = x", "Team": "$1"}, "row 1, Team"),
        ({"Rule": "a", "When": "org = x", "Tier": "P7"}, "row 1, Tier"),
        ({"Rule": "a", "When": "org =~ (x+)+", "Team": "$1"}, "row 1, When"),
    ],
)
def test_a_row_that_is_not_in_order_is_named(row: dict[str, Any], place: str) -> None:
    with pytest.raises(BadInput) as caught:
        rules_of([row], "said", "")
    assert place in str(caught.value)


def test_moves_end_with_the_sums_they_add_up_to() -> None:
    shown = moves_table(preview())
    first = dict(shown.rows[0])
    assert (first["From"], first["To"]) == (
        "acme / search · P1",
        "acme / search / rag · P2",
    )
    assert shown.rows[1]["From"] == "(nobody) · P1"
    assert [row["From"] for row in shown.rows[2:]] == ["Moved in all", "Stays", "All requests", "Of these no rule applies to"]
    assert sum(row["Requests"] for row in shown.rows[:2]) == shown.rows[2]["Requests"] == 5  # type: ignore[misc]
    assert [column.title for column in moves_table(preview(priced=False)).columns] == ["From", "To", "Requests", "Tokens"]
    assert idle_rules(preview()) == ["星辰"]


def test_tenants_come_by_cost_and_versions_newest_first() -> None:
    assert [row["Organisation"] for row in tenants_table(tenants("data", ["org"])["rows"], "org").rows] == [
        "星辰科技",
        "acme",
        "unassigned",
    ]
    shown = versions_table([version(2), version(1, in_force=False)])
    assert [row["State"] for row in shown.rows] == ["in force", ""]
    assert state_words(version(3, in_force=False)).startswith("Version 3, in force from 2026-11-17 09:00 UTC")


@given(
    st.lists(
        st.fixed_dictionaries({"Rule": st.text(max_size=5), "When": st.text(max_size=12), "Team": st.text(max_size=5)}),
        max_size=3,
    )
)
def test_whatever_is_typed_is_a_set_or_a_named_fault(rows: list[dict[str, str]]) -> None:
    with suppress(BadInput):
        made = rules_of(rows, "said", "")
        assert rules_of(rule_rows(made), "said", "") == made
