"""Each page with data, without, with unknown prices, with the API down, and with an expired token."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pages_world import FakeClient
from streamlit.testing.v1 import AppTest

from ui.client import ApiProblem
from ui.components import session
from ui.launch import Launch

Open = Callable[..., AppTest]
PAGES = ("overview", "unit_cost")


def _texts(app: AppTest) -> str:
    parts = [*app.caption, *app.markdown, *app.info, *app.error, *app.warning, *app.subheader, *app.header, *app.title]
    return "\n".join(str(part.value) for part in parts)


def _down(what: str, params: Mapping[str, str]) -> dict[str, Any]:
    raise ApiProblem("The Tokenfuse API cannot be reached.", hint="Is it running?")


def _expired(what: str, params: Mapping[str, str]) -> dict[str, Any]:
    raise ApiProblem("This token is not accepted.", signed_out=True)


def test_overview_with_data(open_app: Open) -> None:
    app = open_app(FakeClient())
    assert not app.exception
    assert {card.label: card.value for card in app.metric}["Cost per million tokens"] == "1.14 USD"
    assert "coverage 98.3 %" in _texts(app)
    assert "Requests are being refused for: 星辰科技 / 客服机器人" in _texts(app)
    assert len(app.dataframe) == 3


def test_unit_cost_with_data(open_app: Open) -> None:
    app = open_app(FakeClient(), "unit_cost")
    assert not app.exception
    assert [card.label for card in app.metric] == ["Blended", "Input", "Cached input", "Output", "Per request"]
    frame = app.dataframe[0].value
    assert list(frame["Deployment"]) == ["bj-1/prod/Qwen3-32B", "bj-1/prod/DeepSeek-R1-671B", "lab/dev/tiny-llama"]
    assert "Compared with" in _texts(app)


@pytest.mark.parametrize("page", PAGES)
def test_without_data_the_page_says_so(open_app: Open, page: str) -> None:
    app = open_app(FakeClient("empty"), page)
    assert not app.exception
    assert not {card.value for card in app.metric} & {"0.00 USD", "0.0 %"}
    assert "closed" in _texts(app)


def test_without_a_budget_the_page_says_how_to_set_one(open_app: Open) -> None:
    assert "tokenfuse budget set" in _texts(open_app(FakeClient("empty")))


@pytest.mark.parametrize("page", PAGES)
def test_unknown_prices_are_visible_with_the_reason_and_the_remedy(open_app: Open, page: str) -> None:
    app = open_app(FakeClient("partial"), page)
    assert not app.exception
    assert "H800 has no rate" in _texts(app).replace("\\", "")
    assert "tokenfuse rates import" in _texts(app)


@pytest.mark.parametrize("page", PAGES)
def test_with_the_api_down_the_page_says_so_and_offers_another_try(open_app: Open, page: str) -> None:
    client = FakeClient(answer=_down)
    app = open_app(client, page)
    assert not app.exception
    assert "cannot be reached" in app.error[0].value
    asked = len(client.asked)
    app.button(key="retry").click().run()
    assert len(client.asked) > asked


@pytest.mark.parametrize("page", PAGES)
def test_an_expired_token_returns_to_sign_in(open_app: Open, page: str) -> None:
    app = open_app(FakeClient(answer=_expired), page)
    assert not app.exception
    assert app.text_input(key="token_input")
    assert "token" not in app.session_state


def test_the_url_decides_the_view_and_the_choice_goes_to_the_url(open_app: Open) -> None:
    client = FakeClient()
    app = open_app(client, query={"range": "24h", "basis": "usage"})
    asked = dict(client.asked)["overview"]
    assert (asked["from"], asked["to"], asked["basis"]) == ("2026-11-17T12:08:00Z", "2026-11-18T12:08:00Z", "usage")
    app.selectbox(key="range").set_value("7d").run()
    assert app.query_params["range"] == "7d"
    assert client.asked[-2][1]["from"] == "2026-11-11T12:08:00Z"


def test_a_link_with_an_unknown_value_says_what_is_shown_instead(open_app: Open) -> None:
    app = open_app(FakeClient(), query={"range": "fortnight"})
    assert "'fortnight', which is not known. Shown instead: This month" in app.warning[0].value


def test_a_typed_range_is_asked_for_and_a_wrong_one_is_refused(open_app: Open) -> None:
    client = FakeClient()
    app = open_app(client, query={"range": "custom", "from": "2026-11-01", "to": "2026-11-02 06:00"})
    assert client.asked[0][1]["from"] == "2026-11-01T00:00:00Z"
    assert client.asked[0][1]["to"] == "2026-11-02T06:00:00Z"
    app.text_input(key="from").set_value("2026-11-31").run()
    assert "From: is not a time (value '2026-11-31')" in app.error[0].value
    assert not app.exception


def test_the_range_stays_when_the_page_changes(open_app: Open) -> None:
    client = FakeClient()
    app = open_app(client, query={"range": "30d"})
    app.switch_page("views/unit_cost.py").run()
    assert app.selectbox(key="range").value == "30d"


def test_this_month_on_unit_cost_is_the_reporting_month_up_to_now(open_app: Open) -> None:
    client = FakeClient()
    app = open_app(client, "unit_cost", query={"range": "month"})
    assert not app.exception
    asked = [params for what, params in client.asked if what == "unit_cost"]
    assert (asked[0]["from"], asked[0]["to"]) == ("2026-11-01T00:00:00Z", "2026-11-18T12:08:00Z")


def test_sign_in_tries_the_token_and_keeps_it_for_the_session(open_app: Open) -> None:
    app = open_app(FakeClient(), token=None)
    app.text_input(key="token_input").set_value("not a token")
    app.button[0].click().run()
    assert "not a token" in app.error[0].value
    app.text_input(key="token_input").set_value("tf_1_secret")
    app.button[0].click().run()
    assert app.session_state["token"] == "tf_1_secret"
    assert app.metric
    app.button(key="sign_out").click().run()
    assert "token" not in app.session_state
    assert app.text_input(key="token_input")


def test_a_refused_token_says_why(open_app: Open) -> None:
    app = open_app(FakeClient(answer=_expired), token=None)
    app.text_input(key="token_input").set_value("tf_1_old")
    app.button[0].click().run()
    assert "not accepted" in app.error[0].value
    assert "token" not in app.session_state


def test_the_demo_signs_in_by_its_file_until_somebody_signs_out(
    open_app: Open, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "reader.token"
    file.write_text("tf_9_demo\n")
    monkeypatch.setattr(session, "read_launch", lambda: Launch(token_file=file, demo=True))
    app = open_app(FakeClient(), token=None)
    assert app.session_state["token"] == "tf_9_demo"
    app.button(key="sign_out").click().run()
    assert app.text_input(key="token_input")
