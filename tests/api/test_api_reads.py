"""The reads: true numbers with their meta, clear refusals of wrong questions, and never another tenant's rows."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from api_client import NOW, Api, TokenMaker
from api_world import DAY, settle
from sqlalchemy import Engine

pytestmark = pytest.mark.db
WRONG: list[Any] = [
    pytest.param("/v1/usage", {"from": "yesterday"}, "from", "is not a time", id="no time"),
    pytest.param("/v1/usage", {"from": "2026-11-30T00:00:00"}, "from", "time has no zone", id="naive time"),
    pytest.param("/v1/usage", {"from": "0001-01-01T00:00:00Z"}, "from", "outside 2000..2200", id="absurd time"),
    pytest.param("/v1/usage", {"from": "2026-11-30T00:00:30Z"}, "from", "must be a whole minute", id="cuts a minute"),
    pytest.param("/v1/usage", {"from": DAY["to"], "to": DAY["from"]}, "to", "must be after", id="ends before it starts"),
    pytest.param("/v1/usage", {"by": "teams"}, "by", "unknown key (value 'teams')", id="unknown key"),
    pytest.param("/v1/usage", {"by": "team,team"}, "by", "names a key twice", id="a key twice"),
    pytest.param("/v1/usage", {"form": DAY["from"]}, "form", "unknown query parameter", id="mistyped parameter"),
    pytest.param("/v1/usage", {"filter.workload_class": "x"}, "filter.workload_class", "valid integer", id="no number"),
    pytest.param("/v1/unit-cost", {"basis": "both"}, "basis", "'allocation' or 'usage'", id="unknown basis"),
    pytest.param("/v1/unit-cost", {"filter.status": "ok"}, "filter.status", "not kept by this key", id="key of no ledger line"),
    pytest.param("/v1/ledger", {"as_of": "now"}, "as_of", "is not a time", id="no as-of time"),
    pytest.param("/v1/audit", {"limit": "0"}, "limit", "greater than or equal to 1", id="no page"),
]


@pytest.fixture
def settled(db: Engine) -> Engine:
    settle(db, NOW)
    return db


@pytest.mark.parametrize(("path", "params", "field", "says"), WRONG)
def test_a_wrong_question_names_the_parameter(
    api: Api, token: TokenMaker, path: str, params: dict[str, str], field: str, says: str
) -> None:
    answer = api.get(path, token("read"), **params)
    error = answer.json()["error"]
    assert (answer.status_code, error["where"], error["field"]) == (400, "query", field)
    assert says in error["message"]


def test_a_plus_that_the_url_turned_into_a_blank_is_mended(api: Api, token: TokenMaker) -> None:
    answer = api.call("GET", "/v1/usage?from=2026-11-30T08:00:00+08:00&to=2026-11-30T09:00:00%2B08:00", token("read"))
    assert answer.status_code == 200
    assert answer.json()["meta"]["window_start"] == "2026-11-30T00:00:00Z"


def test_usage_by_keys(settled: Engine, api: Api, token: TokenMaker) -> None:
    answer = api.get("/v1/usage", token("read"), by="team", **DAY).json()
    rows = {row["team"]: row for row in answer["rows"]}
    assert {name: row["input_uncached"] for name, row in rows.items()} == {"search": 1000, "ads": 500}
    assert (rows["ads"]["aborted"], rows["search"]["aborted"]) == (1, 0)
    assert "org" not in rows["ads"]
    assert answer["meta"]["freshness"] == "2026-11-30T12:07:30Z"


def test_ledger_lines_add_up_to_the_capacity_cost(settled: Engine, api: Api, token: TokenMaker) -> None:
    answer = api.get("/v1/ledger", token("read"), by="kind", to="2026-11-30T11:15:00Z", **{"from": DAY["from"]}).json()
    assert sum(Decimal(row["cost"]) for row in answer["rows"]) == Decimal("0.2515")
    assert sum(Decimal(row["allocated"]) for row in answer["rows"]) == Decimal("0.2515")
    assert {row["currency"] for row in answer["rows"]} == {"USD"}
    windows = api.get("/v1/ledger/windows", token("read"), **DAY).json()["windows"]
    assert (windows[0]["capacity_cost"], windows[0]["price_source"]) == ("0.2515", "test card (list)")


def test_unit_cost_is_a_number_or_null_with_a_reason(settled: Engine, api: Api, token: TokenMaker) -> None:
    row = api.get("/v1/unit-cost", token("read"), by="deployment", **DAY).json()["rows"][0]
    tokens = sum(row["tokens"].values())
    assert Decimal(row["blended_per_mtok"]) == (Decimal(row["cost"]) * 1_000_000 / tokens).quantize(Decimal("1e-12"))
    assert row["input_cached_per_mtok"] is None
    assert "no input_cached tokens" in row["reasons"]["input_cached_per_mtok"]
    assert row["meta"]["basis"] == "allocation"


def test_coverage_says_why(settled: Engine, api: Api, token: TokenMaker) -> None:
    row = api.get("/v1/coverage", token("read"), **DAY).json()["rows"][0]
    assert (row["engine_prompt_tokens"], row["gateway_input_tokens"]) == (1650, 1500)
    assert row["coverage"] == pytest.approx((1500 + 107) / (1650 + 150), abs=1e-6)
    reasons = {reason["name"]: reason for reason in row["reasons"]}
    assert reasons["unattributed"]["known"].startswith("not known")
    assert sum(reason["tokens_in"] or 0 for reason in row["reasons"]) == row["difference_in"] == 150
    assert sum(reason["tokens_out"] or 0 for reason in row["reasons"]) == row["difference_out"] == 43


@pytest.mark.parametrize(
    ("since", "asked", "looked_for"),
    [
        ("2026-09-30T00:00:00Z", {}, True),
        ("2026-09-29T00:00:00Z", {}, False),
        ("2026-01-01T00:00:00Z", {"reasons": "true"}, True),
        ("2026-11-30T00:00:00Z", {"reasons": "false"}, False),
    ],
)
def test_coverage_of_more_than_62_days_looks_for_reasons_only_when_asked(
    settled: Engine, api: Api, token: TokenMaker, since: str, asked: dict[str, str], looked_for: bool
) -> None:
    window = {"from": since, "to": "2026-12-01T00:00:00Z"}
    (row,) = api.get("/v1/coverage", token("read"), **window, **asked).json()["rows"]
    assert (row["reasons"] is not None) == looked_for
    assert (row["difference_in"], row["difference_out"]) == (150, 43)


def test_the_overview_of_an_empty_platform_is_null_with_reasons_not_zero(api: Api, token: TokenMaker) -> None:
    answer = api.get("/v1/overview", token("read")).json()
    assert answer["unit_cost_per_mtok"]["now"] is None
    assert answer["unit_cost_per_mtok"]["now_reason"]
    assert answer["idle_share"] is None
    assert answer["meta"]["freshness"] is None
    assert answer["meta"]["coverage"] is None


def test_the_overview_agrees_with_the_ledger(settled: Engine, api: Api, token: TokenMaker) -> None:
    overview = api.get("/v1/overview", token("read"), **DAY).json()
    unit = api.get("/v1/unit-cost", token("read"), by="", **DAY).json()["rows"][0]
    assert overview["unit_cost_per_mtok"]["now"] == unit["blended_per_mtok"]
    assert (overview["tokens_input"], overview["tokens_output"], overview["requests"]) == (1500, 107, 2)
    assert overview["series_step"] == "hour"
    points = [Decimal(point["cost"]) for point in overview["series"] if point["cost"] is not None]
    assert sum(points) == Decimal(overview["spend"])
    assert 0 < Decimal(overview["idle_share"]) < 1


def test_a_tenants_token_sees_its_own_rows_only(settled: Engine, api: Api, token: TokenMaker) -> None:
    search = token("read", tenant="acme/search")
    assert [row["team"] for row in api.get("/v1/usage", search, by="team", **DAY).json()["rows"]] == ["search"]
    assert {row["team"] for row in api.get("/v1/ledger", search, by="team", **DAY).json()["rows"]} == {"search"}
    assert {row["team"] for row in api.get("/v1/unit-cost", search, by="team", **DAY).json()["rows"]} == {"search"}
    assert api.get("/v1/usage", search, **{**DAY, "filter.team": "ads"}).status_code == 403
    assert api.get("/v1/overview", search, **DAY).json()["requests"] == 1
    for path in ("/v1/coverage", "/v1/audit", "/v1/audit/verify", "/v1/quality", "/v1/ledger/windows", "/metrics"):
        assert api.get(path, search).status_code == 403, path


def test_metrics_leave_out_what_is_unknown(settled: Engine, api: Api, token: TokenMaker) -> None:
    text = api.get("/metrics", token("read")).text
    labels = 'basis="allocation",currency="USD",deployment="lab/prod/tiny"'
    assert f'tokenfuse_cost_per_million_tokens{{{labels},kind="blended"}}' in text
    assert 'kind="input_cached"' not in text
    assert 'tokenfuse_stream_behind_lines{topic="usage"} 0.0' in text
    assert 'tokenfuse_ingest_records_total{verdict="accepted"} 0.0' in text
    again = api.get("/metrics", token("read")).text
    assert 'tokenfuse_http_request_duration_seconds_count{method="GET",route="/metrics",status="2xx"} 1.0' in again
