"""The token heat map and the efficiency series over HTTP."""

from __future__ import annotations

import pytest
from api_client import NOW, Api, TokenMaker
from api_world import DAY, T0, D, settle
from sqlalchemy import Engine, insert

from core.efficiency import FIGURES
from core.lengths import bucket
from models.partitions import ensure_months
from models.tables import UsageLengthRow

pytestmark = pytest.mark.db
PLACE = {"cluster": D.cluster, "namespace": D.namespace, "model_id": D.model_id}


@pytest.fixture
def settled(db: Engine) -> Engine:
    settle(db, NOW)
    with db.begin() as connection:
        ensure_months(connection, [T0])
        rows = [("acme", 5000, 60), ("acme", 40_000, 39), ("other", 100, 1)]
        connection.execute(
            insert(UsageLengthRow),
            [
                {
                    "hour": T0, **PLACE, "org": org, "kind": "input", "bucket": bucket(length), "requests": n,
                    "tokens": n * length,
                }
                for org, length, n in rows
            ],
        )  # fmt: skip
    return db


def test_the_heat_map_has_readable_buckets_and_the_spread(settled: Engine, api: Api, token: TokenMaker) -> None:
    answer = api.get("/v1/heat-map", token("read"), org="acme", **DAY).json()
    assert [(cell["at"], cell["label"], cell["requests"]) for cell in answer["cells"]] == [
        (11, "4–8 K tokens", 60),
        (11, "32–64 K tokens", 39),
    ]
    assert answer["whole"]["spread"] > 4
    hours = api.get("/v1/heat-map", token("read"), axis="hour", deployment=str(D), **DAY).json()
    assert hours["lengths"][0]["at"] == "2026-11-30T11:00:00Z"
    assert hours["whole"]["requests"] == 100
    empty = api.get("/v1/heat-map", token("read"), kind="output", **DAY).json()
    assert (empty["cells"], empty["whole"]["p50"]) == ([], None)


def test_an_organisation_sees_its_own_lengths_only(settled: Engine, api: Api, token: TokenMaker) -> None:
    own = api.get("/v1/heat-map", token("read", tenant="other"), **DAY).json()
    assert own["whole"]["requests"] == 1
    assert api.get("/v1/heat-map", token("read", tenant="other"), org="acme", **DAY).status_code == 403
    assert api.get("/v1/heat-map", token("read", tenant="acme/search"), **DAY).status_code == 403
    assert api.get("/v1/efficiency", token("read", tenant="acme"), **DAY).status_code == 403


def test_efficiency_gives_every_figure_or_its_reason(settled: Engine, api: Api, token: TokenMaker) -> None:
    answer = api.get("/v1/efficiency", token("read"), step="hour", **DAY).json()
    (row,) = answer["rows"]
    assert (row["hour"], row["deployment"], row["engines"]) == ("2026-11-30T11:00:00Z", str(D), 1)
    assert row["busy_share"] == 0.5
    assert row["batch_gap"] == 1
    assert {name for name in FIGURES if row[name] is None} == set(row["reasons"])
    assert "not measured" in row["reasons"]["power_w"]
    (whole,) = api.get("/v1/efficiency", token("read"), step="none", deployment=str(D), **DAY).json()["rows"]
    assert "hour" not in whole


@pytest.mark.parametrize(
    ("path", "params", "field"),
    [
        ("/v1/heat-map", {"axis": "week"}, "axis"),
        ("/v1/heat-map", {"deployment": "tiny"}, "filter.deployment"),
        ("/v1/efficiency", {"step": "year"}, "step"),
        ("/v1/efficiency", {"from": "2026-11-30T00:00:30Z"}, "from"),
    ],
)
def test_a_wrong_question_names_the_parameter(api: Api, token: TokenMaker, path: str, params: dict[str, str], field: str) -> None:
    answer = api.get(path, token("read"), **params)
    assert (answer.status_code, answer.json()["error"]["field"]) == (400, field)
