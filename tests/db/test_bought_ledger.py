"""Bought tokens in the ledger: priced per request by the lists of their time, versions when a list or a late request comes, and
holes with their tokens where no list names the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from bought_world import pack
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, text

from control.ledger_close import CloseSettings, close_due, ledger_show
from control.running_cost import spend
from core.bought import bought_sums
from core.errors import Conflict
from core.money import money
from core.tokens import TokenCounts
from core.usage import Deployment, TenantPath, UsageRecord
from core.vendor_book import ModelAlias
from core.vendor_list import ModelSheet, PriceEntry, Rule
from core.vendor_price import TokenPrices
from core.windows import QUARTER_HOUR, Window, floor_time
from eventlog.bought_sql import archived_bought
from models.bought_check_repo import bought_months
from models.bought_repo import read_bought
from models.database import transaction
from models.ledger_repo import ledger_windows, unit_cost_rows
from models.partitions import ensure_months
from models.unpriced_repo import unpriced_rows
from models.vendor_repo import add_alias, add_sheets, end_alias, read_sheets

pytestmark = pytest.mark.db
NOW = datetime(2026, 11, 30, 20, tzinfo=UTC)
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
JANUARY = datetime(2026, 1, 1, tzinfo=UTC)
DAY = Window(datetime(2026, 11, 30, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC))
CHAT = Deployment("vendor", "acme", "chat")
NO_SILENCE = CloseSettings(silence_holds=False)


def request(request_id: str, minutes: float = 1, **changes: Any) -> UsageRecord:
    """A request that finished so many minutes after noon."""
    at = NOON + timedelta(minutes=minutes)
    record = UsageRecord(
        request_id=request_id, started_at=at - timedelta(seconds=2), finished_at=at, deployment=CHAT, provider="acme",
        tenant=TenantPath("org", "search"), tokens=TokenCounts(input_uncached=1_000, input_cache_read=500, output=200),
    )  # fmt: skip
    return replace(record, **changes)


def entry(input_: str, output: str, cache_read: str | None = None, **more: Any) -> PriceEntry:
    cached = None if cache_read is None else Decimal(cache_read)
    return PriceEntry(TokenPrices("USD", Decimal(input_), Decimal(output), cached), **more)


def sheet(*entries: PriceEntry, model: str = "chat", since: datetime = JANUARY, **more: Any) -> ModelSheet:
    found = entries or (entry("2", "8", "0.5"),)
    return ModelSheet(
        "genai-prices", "acme", model, (Rule("exact", model),), found, since, f"genai-prices {since:%Y-%m-%d}", **more
    )


def take(db: Engine, *sheets: ModelSheet, at: datetime = JANUARY) -> None:
    with transaction(db) as connection:
        add_sheets(connection, "genai-prices", sheets, at, f"genai-prices {at:%Y-%m-%d}", NOW)


@pytest.fixture
def buy(tmp_path: Path, db: Engine) -> Callable[..., None]:
    """Records through log and archive, their hours summed."""
    with transaction(db) as connection:
        ensure_months(connection, [NOON])

    return lambda *records: pack(db, tmp_path, records, NOW)


def close(db: Engine) -> list[dict[str, Any]]:
    report = close_due(db, NOW, NO_SILENCE)
    assert (report.failures, report.held) == ([], "")
    with transaction(db) as connection:
        return ledger_windows(connection, DAY)


def rows(db: Engine, *by: str) -> list[dict[str, Any]]:
    with transaction(db) as connection:
        shown = ledger_show(connection, DAY, by=by)
    assert all(total["difference"] == 0 for total in shown["totals"])
    found: list[dict[str, Any]] = shown["rows"]
    return found


def holes(db: Engine) -> list[dict[str, Any]]:
    with transaction(db) as connection:
        return unpriced_rows(connection, DAY)


def test_each_bucket_at_its_price_and_nothing_idle(db: Engine, buy: Callable[..., None]) -> None:
    take(db, sheet())
    buy(request("a"), request("b", status="aborted", tenant=TenantPath("org", "ads")))
    (window,) = close(db)
    each = Decimal("0.00385")  # 1000 at 2, 500 at 0.5, 200 at 8 per million
    assert (window["capacity_cost"], window["used_cost"], window["state"]) == (2 * each, 2 * each, "provisional")
    assert window["price_source"] == "genai-prices 2026-01-01 acme/chat (list)"
    lines = {(r["kind"], r["team"], r["token_kind"]): (r["cost"], r["allocated"], r["tokens"], r["requests"])
             for r in rows(db, "kind", "team", "token_kind")}  # fmt: skip
    want = {
        "input": (Decimal("0.002"), Decimal("0.002"), 1000, 1),
        "input_cached": (Decimal("0.00025"), Decimal("0.00025"), 500, 0),
        "output": (Decimal("0.0016"), Decimal("0.0016"), 200, 0),
    }
    assert lines == {(kind, team, name): values for kind, team in (("served", "search"), ("wasted", "ads"))
                     for name, values in want.items()}  # fmt: skip
    assert holes(db) == []


def test_tier_time_of_day_and_length_are_each_requests_own(db: Engine, buy: Callable[..., None]) -> None:
    night = entry("1", "1", "1", day_from=time(12, 30), day_to=time(13))
    take(
        db,
        sheet(entry("2", "2", "2"), entry("4", "4", "4", above_tokens=200_000), entry("0.5", "0.5", "0.5", tier="batch"), night),
    )
    long = TokenCounts(input_uncached=200_001)
    one = TokenCounts(input_uncached=1_000_000 - 1)
    buy(
        request("day", tokens=TokenCounts(200_000)),
        request("long", tokens=long),
        request("batch", tokens=one, raw={"service_tier": "batch"}),
        request("asked", tokens=one, raw={"litellm": {"service_tier": "batch"}}),
        request("night", minutes=31, tokens=TokenCounts(200_000)),
    )
    first, second = close(db)
    millions = Decimal("0.2") * 2 + Decimal("0.200001") * 4 + 2 * Decimal("0.999999") * Decimal("0.5")
    assert (first["capacity_cost"], second["capacity_cost"]) == (millions, Decimal("0.2"))


def test_a_model_no_list_names_is_a_hole_until_an_alias_fills_it(db: Engine, buy: Callable[..., None]) -> None:
    take(db, sheet())
    unknown = Deployment("vendor", "acme", "hf/Chat-V3")
    buy(request("a"), request("b", deployment=unknown), request("c", deployment=unknown, tenant=TenantPath("org", "ads")))
    known, hole = sorted(close(db), key=lambda w: str(w["deployment"]))
    assert (known["capacity_cost"], hole["capacity_cost"], hole["currency"]) == (Decimal("0.00385"), None, "USD")
    (row,) = holes(db)
    names = ("vendor", "model", "requests", "input_uncached", "input_cache_read", "output", "tenants")
    assert {name: row[name] for name in names} == {
        "vendor": "acme", "model": "hf/Chat-V3", "requests": 2, "input_uncached": 2_000, "input_cache_read": 1_000, "output": 400,
        "tenants": ["org/ads", "org/search"],
    }  # fmt: skip
    assert (row["first_at"], row["last_at"]) == (NOON, NOON + QUARTER_HOUR)
    assert "no price list names acme/hf/Chat-V3" in row["reason"]
    assert "tokenfuse rates vendor alias add acme/hf/Chat-V3" in row["hint"]
    with transaction(db) as connection:
        assert (
            add_alias(connection, ModelAlias("price", "acme", "hf/Chat-V3", "acme", "chat", "", NOON, None, "kim", "same"), NOW)
            == 2
        )
    assert [w["version"] for w in sorted(close(db), key=lambda w: str(w["deployment"]))] == [1, 2]
    assert (holes(db), sum(r["cost"] for r in rows(db, "kind"))) == ([], 3 * Decimal("0.00385"))
    with transaction(db) as connection:
        end_alias(connection, "price", "acme", "hf/Chat-V3", NOON + QUARTER_HOUR, NOW)
    assert [w["version"] for w in sorted(close(db), key=lambda w: str(w["deployment"]))] == [1, 2]


def test_a_bucket_without_a_price_leaves_the_other_tokens_priced(db: Engine, buy: Callable[..., None]) -> None:
    take(db, sheet(entry("2", "8")))
    buy(request("plain", tokens=TokenCounts(1_000, output=200)), request("cached"))
    (window,) = close(db)
    assert window["capacity_cost"] == 2 * Decimal("0.0036")
    (row,) = holes(db)
    assert (row["input_uncached"], row["input_cache_read"], row["output"]) == (0, 500, 0)
    assert row["reason"] == "genai-prices 2026-01-01 acme/chat has no price of cache_read"
    with transaction(db) as connection:
        (unit,) = unit_cost_rows(connection, ["deployment"], DAY, "usage")
        hourly = unit_cost_rows(connection, ["hour"], DAY, "usage")
    assert (unit["cost"], unit["meta"]["unpriced_tokens"]) == (Decimal("0.0072"), 500)
    assert [row["meta"]["unpriced_tokens"] for row in hourly] == [500]


def test_a_new_list_makes_new_versions_only_where_prices_changed(db: Engine, buy: Callable[..., None]) -> None:
    take(db, sheet())
    buy(request("early"), request("late", minutes=61))
    assert [w["version"] for w in close(db)] == [1, 1]
    hour = NOON + timedelta(hours=1)
    take(db, sheet(entry("4", "8", "0.5"), since=hour), at=hour)
    assert [(w["version"], w["capacity_cost"]) for w in close(db)] == [(1, Decimal("0.00385")), (2, Decimal("0.00585"))]
    with transaction(db) as connection:
        before = ledger_windows(connection, DAY, as_of=NOW - timedelta(seconds=1))
        with pytest.raises(Conflict, match="there are prices since"):
            add_sheets(connection, "genai-prices", [sheet(entry("9", "9", "9"))], JANUARY, "old", NOW)
    assert before == []


def test_a_late_request_makes_a_new_version_and_a_copy_changes_nothing(db: Engine, buy: Callable[..., None]) -> None:
    take(db, sheet())
    buy(request("a"))
    close(db)
    buy(request("a"), request("b"))
    assert [(w["version"], w["capacity_cost"]) for w in close(db)] == [(2, Decimal("0.0077"))]
    buy(request("a"))
    assert [w["version"] for w in close(db)] == [2]


def test_what_the_gateway_says_stands_beside_and_never_instead(db: Engine, buy: Callable[..., None]) -> None:
    take(db, sheet())
    buy(request("a", vendor_cost=money("0.5", "USD")), request("b"))
    (window,) = close(db)
    assert window["capacity_cost"] == Decimal("0.0077")
    assert window["detail"]["gateway_says"] == [{"currency": "USD", "amount": "0.5", "requests": 1}]


def test_requests_the_archive_does_not_have_yet_are_a_hole(db: Engine, buy: Callable[..., None]) -> None:
    take(db, sheet())
    buy(request("a"))
    keys = "cluster, namespace, model_id, org, team, project, user_id, key_id, service_tier, status, usage_source, workload_class"
    with transaction(db) as connection:
        connection.execute(
            text(
                f"INSERT INTO usage_minute (minute, {keys}, requests, input_uncached, output) "
                "VALUES (:at, 'vendor', 'acme', 'chat', 'org', '', '', '', '', 'P1', 'ok', 'exact', 0, 3, 10, 5)"
            ),
            {"at": NOON},
        )
    (window,) = close(db)
    (row,) = holes(db)
    assert (window["capacity_cost"], row["requests"]) == (Decimal("0.00385"), 2)
    assert "has not come that far" in row["reason"]


def test_budgets_see_bought_tokens(db: Engine, buy: Callable[..., None]) -> None:
    take(db, sheet())
    buy(request("a"))
    close(db)
    with transaction(db) as connection:
        for scope in ("tenant:org/search", "platform", "deployment:vendor/acme/chat"):
            found = spend(connection, scope, DAY, "usage", NOW)
            assert (found.amount, found.reason) == (money("0.00385", "USD"), ""), scope


def test_sheets_come_back_as_they_were_taken(db: Engine) -> None:
    night = {"day_from": time(22), "day_to": time(6), "zone_name": "Asia/Shanghai"}
    made = sheet(entry("1", "2", "0.1", tier="flex", above_tokens=128_000, **night),
                 PriceEntry(TokenPrices("USD", *[Decimal(0)] * 6), free=True, starts_at=NOON))  # fmt: skip
    take(db, made)
    with transaction(db) as connection:
        assert read_sheets(connection) == [made]
        again = add_sheets(connection, "genai-prices", [made], NOON, "x", NOW)
        assert (again.new, again.changed, again.unchanged, again.ended) == ((), (), 1, ())
        gone = add_sheets(connection, "genai-prices", [], NOON, "genai-prices 2026-11-30", NOW)
        assert gone.ended == ("acme/chat",)
        (newest,) = read_sheets(connection)
    assert (newest.entries, newest.valid_from) == ((), NOON)


@st.composite
def batches(draw: st.DrawFn) -> list[UsageRecord]:
    """Copies of a request stand less than an hour apart: the archive looks no further for them (docs/vendor-prices.md)."""
    return [
        request(
            f"r{n}",
            minutes=draw(st.integers(-20, 35)),
            deployment=draw(st.sampled_from([CHAT, Deployment("vendor", "acme", "b"), Deployment("own", "n", "m")])),
            status=draw(st.sampled_from(["ok", "error", "aborted", "refused"])),
            tenant=TenantPath("org", draw(st.sampled_from(["", "search"]))),
            tokens=TokenCounts(draw(st.sampled_from([0, 32_000, 32_001, 300_000])), 7, 1, 2, 50, 20),
            raw=draw(
                st.sampled_from([{}, {"service_tier": "Default"}, {"service_tier": 3}, {"litellm": {"service_tier": "flex"}}])
            ),
            vendor_cost=draw(st.sampled_from([None, money("0.00047999999999999996", "USD"), money("1", "EUR")])),
        )
        for n in draw(st.lists(st.integers(0, 9), min_size=1, max_size=8))
    ]


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches())
def test_the_archive_the_table_and_the_rule_agree(
    db: Engine, tmp_path_factory: pytest.TempPathFactory, found: list[UsageRecord]
) -> None:
    """Three forms of one rule."""
    folder = tmp_path_factory.mktemp("bought")
    with transaction(db) as connection:
        for table in ("bought_usage", "feature_file", "feature_dirty", "dirty_window"):
            connection.execute(text(f"DELETE FROM {table}"))
    pack(db, folder, found, NOW)
    expected = bought_sums(found)
    hours = {floor_time(record.finished_at, timedelta(hours=1)) for record in found}
    asked = {key: sums for hour in sorted(hours) for key, sums in archived_bought(folder, hour).items()}
    with transaction(db) as connection:
        stored = read_bought(connection, Window(NOON - timedelta(days=1), NOON + timedelta(days=1)))
    assert asked == expected
    assert stored == expected


def test_lists_gateway_and_bill_stand_beside_each_other(db: Engine, buy: Callable[..., None]) -> None:
    take(db, sheet())
    buy(request("a", vendor_cost=money("0.004", "USD")), request("b"))
    close(db)
    with transaction(db) as connection:
        (month,) = bought_months(connection, DAY)
    assert (month.vendor, month.requests, month.tokens, month.list_cost) == ("acme", 2, 3_400, Decimal("0.0077"))
    assert (month.gateway_cost, month.gateway_requests, month.billed, month.difference) == (Decimal("0.004"), 1, None, None)
