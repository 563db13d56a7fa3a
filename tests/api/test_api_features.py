"""Features of requests and the graph of tools over HTTP."""

from __future__ import annotations

import pytest
from api_client import Api, TokenMaker
from api_world import DAY, T0, D
from sqlalchemy import Engine, text

from core.features import MEASURES, HourFeatures
from core.usage import Deployment
from models.database import transaction
from models.features_repo import replace_hour

pytestmark = pytest.mark.db


def sums(**given: int) -> tuple[int, ...]:
    return tuple(given.get(name, 0) for name in MEASURES)


@pytest.fixture
def computed(db: Engine) -> Engine:
    place = (D.cluster, D.namespace, D.model_id)
    seen = {"requests": 4, "counted_requests": 4, "input_tokens": 400, "cached_tokens": 100, "output_tokens": 40}
    sampled = {"sketched_requests": 2, "sketched_input_tokens": 200, "similar_requests": 1, "shareable_tokens": 30}
    found = HourFeatures(
        rows={(*place, "acme", "search"): sums(**seen, **sampled), (*place, "other", ""): sums(requests=1)},
        edges={(*place, "acme", "", "find"): 2, (*place, "acme", "find", "mail"): 3, (*place, "other", "", "run"): 1},
    )
    with transaction(db) as connection:
        replace_hour(connection, T0, found)
    return db


def test_every_figure_is_a_number_or_null_with_a_reason(computed: Engine, api: Api, token: TokenMaker) -> None:
    acme, other = api.get("/v1/features", token("read"), by="org,hour", **DAY).json()["rows"]
    assert (acme["org"], acme["hour"], acme["requests"]) == ("acme", "2026-11-30T11:00:00Z", 4)
    assert (acme["context_mean"], acme["cached_share"], acme["similar_share"], acme["shareable_share"]) == (100, 0.25, 0.5, 0.15)
    assert (acme["repeat_ratio"], acme["reasons"]["repeat_ratio"].split(":")[0]) == (None, "no gateway hook computed it")
    assert other["context_mean"] is None
    assert other["reasons"]["context_mean"] == "no request said its tokens"
    answer = api.get("/v1/features", token("read"), **DAY).json()
    assert (answer["total_rows"], answer["rows"][0]["deployment"], answer["rows"][0]["requests"]) == (1, str(D), 5)
    assert (answer["meta"]["window_start"], answer["meta"]["window_end"]) == ("2026-11-30T00:00:00Z", "2026-12-01T00:00:00Z")


def test_a_tenant_sees_its_own_and_not_whether_others_ask_the_same(computed: Engine, api: Api, token: TokenMaker) -> None:
    mine = token("read", tenant="acme/search")
    (row,) = api.get("/v1/features", mine, **DAY).json()["rows"]
    assert (row["requests"], row["similar_requests"], row["similar_share"], row["shareable_tokens"]) == (4, None, None, None)
    assert row["reasons"]["similar_share"] == "prompts are compared across tenants"
    assert api.get("/v1/features", mine, **DAY, **{"filter.org": "other"}).status_code == 403
    assert api.get("/v1/features", token("read", tenant="acme/search/p"), **DAY).status_code == 403
    assert api.get("/v1/tool-graph", mine, **DAY).status_code == 403
    edges = api.get("/v1/tool-graph", token("read", tenant="other"), **DAY).json()["edges"]
    assert edges == [{"from_tool": "", "to_tool": "run", "steps": 1}]


def test_tools_come_most_frequent_first(computed: Engine, api: Api, token: TokenMaker) -> None:
    answer = api.get("/v1/tool-graph", token("read"), **DAY, limit=2).json()
    assert [(edge["from_tool"], edge["to_tool"], edge["steps"]) for edge in answer["edges"]] == [
        ("find", "mail", 3),
        ("", "find", 2),
    ]
    assert answer["total_rows"] == 3
    elsewhere = Deployment("x", "y", "z")
    named = {"filter.cluster": elsewhere.cluster}
    assert api.get("/v1/tool-graph", token("read"), **DAY, **named).json()["edges"] == []


@pytest.mark.parametrize(
    ("path", "query", "field"),
    [
        ("/v1/features", {"by": "user"}, "by"),
        ("/v1/features", {"by": "org,org"}, "by"),
        ("/v1/features", {"filter.user": "ann"}, "filter"),
        ("/v1/tool-graph", {"filter.team": "search"}, "filter"),
        ("/v1/features", {"from": "2026-11-30T12:00:00"}, "from"),
    ],
)
def test_what_cannot_be_asked_is_named(
    db: Engine, api: Api, token: TokenMaker, path: str, query: dict[str, str], field: str
) -> None:
    answer = api.get(path, token("read"), **query)
    assert (answer.status_code, answer.json()["error"]["field"]) == (400, field)


def test_the_tables_hold_the_measures_in_their_order(db: Engine) -> None:
    with transaction(db) as connection:
        found = connection.execute(
            text("SELECT column_name FROM information_schema.columns WHERE table_name = 'feature_hour' ORDER BY ordinal_position")
        )
        assert tuple(found.scalars())[6:] == MEASURES
