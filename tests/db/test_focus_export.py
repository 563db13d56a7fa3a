"""``export focus`` on a real ledger: what stands in the files, their sums, and the way back into an empty Tokenfuse."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from bill_takes import Takes
from explain_world import BEFORE, JUNE, generate
from focus_world import BOTH, NOW, empty_database, export, rows_of
from recording_rows import AFTER, PLACE, TARGET, load
from sqlalchemy import Engine, text

from control.ledger_close import close_all, close_due, import_rates, ledger_show
from core.capacity import NodeService
from core.errors import BadInput, Conflict, TokenfuseError
from core.focus_rows import COLUMNS
from core.money import money
from core.rates import Rate
from core.usage import Deployment
from core.windows import QUARTER_HOUR, Window
from ingest.prices.rate_card import default_rate_card
from models.database import open_engine
from models.ledger_repo import ledger_rows
from models.ledger_sums import TABLES
from models.rates_repo import add_rates, declare_service

pytestmark = pytest.mark.db


def amount(rows: list[dict[str, str]], column: str) -> Decimal:
    return sum((Decimal(row[column]) for row in rows if row[column]), Decimal(0))


@pytest.fixture
def second(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """A second database with the whole schema and nothing in it."""
    with empty_database(request.getfixturevalue("_template_url")) as url:
        engine = open_engine(url)
        yield engine
        engine.dispose()


def test_every_sum_is_the_ledgers(db: Engine, tmp_path: Path) -> None:
    generate(db)
    done = export(db, tmp_path)
    assert [(period.billing_period, period.totals[0]["effective"]) for period in done.periods] == [
        ("2026-05", Decimal(200)),
        ("2026-06", Decimal(280)),
    ]
    (total,) = done.totals
    assert (total["currency"], total["effective"], total["with_idle"], total["origin"]) == ("USD", 480, 480, 480)
    with db.connect() as connection:
        assert ledger_show(connection, BOTH)["totals"][0]["lines_cost"] == total["effective"]
    rows = [row for period in done.periods for row in rows_of(period.file)]
    assert {amount(rows, name) for name in ("BilledCost", "EffectiveCost", "ContractedCost", "ListCost")} == {Decimal(480)}
    assert {row["x_ListCostState"] for row in rows} == {"known"}


def test_the_rows_of_an_origin_add_up_to_it(db: Engine, tmp_path: Path) -> None:
    generate(db)
    rows = rows_of(export(db, tmp_path, JUNE).periods[0].file)
    parts: dict[str, Decimal] = defaultdict(Decimal)
    for row in rows:
        parts[row["x_OriginId"]] += Decimal(row["EffectiveCost"])
    origins = {row["x_OriginId"]: row for row in rows if row["x_RowKind"] == "origin"}
    assert {name: Decimal(row["x_OriginCost"]) for name, row in origins.items()} == parts
    assert {row["EffectiveCost"] for row in origins.values()} == {"0"}
    hours = {row["x_ModelId"]: (row["ConsumedQuantity"], row["ConsumedUnit"], row["SkuMeter"]) for row in origins.values()}
    assert hours == {
        "chat": ("30", "Hours", "GPU Hours"),
        "code": ("10", "Hours", "GPU Hours"),
        "docs": ("50", "Hours", "GPU Hours"),
    }


def test_tokens_are_consumed_raw_and_priced_by_the_million(db: Engine, tmp_path: Path) -> None:
    generate(db)
    rows = rows_of(export(db, tmp_path, JUNE, grain="day").periods[0].file)
    chat = {row["SkuMeter"]: row for row in rows if row["x_ModelId"] == "chat"}
    read, idle = chat["Cache Read Input Tokens"], chat["Idle GPU Hours"]
    assert (read["ConsumedQuantity"], read["ConsumedUnit"]) == (str(8 * 20_000), "Tokens")
    assert (read["PricingQuantity"], read["PricingUnit"]) == ("0.16", "1000000 Tokens")
    assert (read["SubAccountId"], read["SubAccountType"], read["x_CacheReadShare"]) == ("acme/chat", "Team", "0.2")
    assert json.loads(read["Tags"]) == {"model": "chat", "organisation": "acme", "service_tier": "P1", "team": "chat"}
    assert json.loads(read["SkuPriceDetails"])["x_TokenCacheAction"] == "Read"
    assert (idle["SubAccountId"], idle["ConsumedUnit"], idle["ConsumedQuantity"]) == ("", "Hours", "20")
    assert (idle["x_Utilisation"], idle["x_UtilisationSource"] != "") == ("0.666667", True)
    assert (read["ChargePeriodStart"], read["ChargePeriodEnd"]) == ("2026-06-01T00:00:00Z", "2026-06-02T00:00:00Z")


def test_parquet_holds_the_same_rows_with_declared_types(db: Engine, tmp_path: Path) -> None:
    generate(db)
    by_csv = rows_of(export(db, tmp_path / "csv", JUNE).periods[0].file)
    table = pq.read_table(export(db, tmp_path / "pq", JUNE, file_format="parquet").periods[0].file)
    assert table.column_names == list(by_csv[0])
    assert str(table.schema.field("EffectiveCost").type) == "decimal128(38, 12)"
    assert str(table.schema.field("ChargePeriodStart").type) == "timestamp[ms, tz=UTC]"
    cost = [Decimal(row["EffectiveCost"]) for row in by_csv]
    assert table.column("EffectiveCost").to_pylist() == cost


def test_cells_are_written_as_the_specification_writes_them(db: Engine, tmp_path: Path) -> None:
    generate(db)
    rows = rows_of(export(db, tmp_path, JUNE).periods[0].file)
    shapes = {
        "time": r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z", "decimal": r"-?\d+(\.\d*[1-9])?",
        "integer": r"\d+", "text": r"\S(.*\S)?",
    }  # fmt: skip
    wrong = {
        (name, row[name])
        for row in rows
        for name, kind in COLUMNS.items()
        if row[name] and not re.fullmatch(shapes[kind], row[name])
    }
    assert wrong == set()
    never_empty = [name for name in COLUMNS if all(row[name] for row in rows)]
    assert {"BilledCost", "BillingAccountId", "ChargeCategory", "ServiceName", "PricingQuantity", "Tags"} <= set(never_empty)


def test_the_ledger_as_it_stood_then(db: Engine, tmp_path: Path) -> None:
    generate(db)
    with db.begin() as connection:
        connection.execute(text("UPDATE ledger_window SET closed_at = '2026-07-01T00:00:00Z'"))
        add_rates(connection, [Rate("gpu_hour", "H100", money("9.00", "USD"), "contracted", "card", JUNE.start)], JUNE.end)
        for sku in ("A100", "L4"):
            add_rates(connection, [Rate("gpu_hour", sku, money("1.00", "USD"), "contracted", "card", JUNE.start)], JUNE.end)
    assert close_all(db, NOW, since=JUNE.start).reclosed == 24
    then = JUNE.end.replace(hour=12)
    assert export(db, tmp_path / "then", JUNE, as_of=then).totals[0]["effective"] == 280
    newest = export(db, tmp_path / "now", JUNE)
    assert newest.totals[0]["effective"] == 340
    assert {row["x_ListCostState"] for row in rows_of(newest.periods[0].file)} == {"unknown"}


@pytest.mark.parametrize(("kinds", "count"), [("allocated", 0), ("origin", 6), ("both", 6)])
def test_each_kind_of_rows_adds_up_to_the_ledger(db: Engine, tmp_path: Path, kinds: str, count: int) -> None:
    generate(db)
    rows = rows_of(export(db, tmp_path, JUNE, rows=kinds).periods[0].file)
    assert amount(rows, "EffectiveCost") == 280
    assert sum(row["x_RowKind"] == "origin" for row in rows) == count


def test_one_tenants_rows_add_up_to_its_lines(db: Engine, tmp_path: Path) -> None:
    generate(db)
    done = export(db, tmp_path, JUNE, rows="allocated", tenant=("acme", "docs"))
    with db.connect() as connection:
        (lines,) = ledger_rows(connection, (), JUNE, filters={"org": "acme", "team": "docs"})
    assert done.totals[0]["effective"] == lines["cost"] > 0
    assert {row["SubAccountId"] for row in rows_of(done.periods[0].file)} == {"acme/docs"}
    with pytest.raises(BadInput, match="origin rows are of all tenants"):
        export(db, tmp_path, JUNE, tenant=("acme",))


def test_it_comes_back_with_equal_totals(db: Engine, tmp_path: Path, second: Engine) -> None:
    generate(db)
    export(db, tmp_path / "out")
    takes = Takes(second, tmp_path, "focus")
    bills = takes.path(tmp_path / "out")
    assert [(bill.export, f"{bill.billing_period:%Y-%m}") for bill in bills] == [
        ("tokenfuse-focus", "2026-05"),
        ("tokenfuse-focus", "2026-06"),
    ]
    (sums,) = takes.charges()
    assert (sums["billed_cost"], sums["effective_cost"], sums["list_cost"]) == (480, 480, 480)
    assert takes.by("bucket") == {"gpu": 480}
    with db.connect() as connection:
        teams = {row["team"]: row["cost"] for row in ledger_rows(connection, ("team",), BOTH)}
    assert takes.by("tag:team") == teams
    assert takes.by("account") == {f"acme/{team}" if team else "": cost for team, cost in teams.items()}


def test_the_same_period_again_takes_the_formers_place(db: Engine, tmp_path: Path) -> None:
    generate(db)
    first = export(db, tmp_path, JUNE)
    second = export(db, tmp_path, JUNE, now=NOW.replace(hour=1), file_format="parquet")
    files = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert len(files) == 2
    assert not Path(first.periods[0].file).exists()
    manifest = json.loads(Path(second.periods[0].manifest).read_text())
    assert manifest["dataFiles"] == [f"./{Path(second.periods[0].file).relative_to(tmp_path).as_posix()}"]
    with pytest.raises(Conflict, match="would take its place"):
        export(db, tmp_path, Window(JUNE.start, JUNE.start + 4 * QUARTER_HOUR))


def test_a_final_month_names_an_invoice_and_any_other_does_not(db: Engine, tmp_path: Path) -> None:
    generate(db)
    with db.begin() as connection:
        connection.execute(text("UPDATE ledger_window SET state = 'final' WHERE window_start >= '2026-06-01'"))
    done = export(db, tmp_path / "whole")
    assert [period.invoice_id for period in done.periods] == [None, "showback-2026-06"]
    assert {row["InvoiceId"] for row in rows_of(done.periods[1].file)} == {"showback-2026-06"}
    part = export(db, tmp_path / "part", Window(JUNE.start, JUNE.start + 4 * QUARTER_HOUR))
    assert part.periods[0].invoice_id is None


def test_sums_that_differ_from_the_ledger_stop_it(db: Engine, tmp_path: Path) -> None:
    generate(db)
    with db.begin() as connection:
        connection.execute(
            text("UPDATE ledger_line SET cost = cost + 0.000000000001 WHERE id = (SELECT max(id) FROM ledger_line)")
        )
    with pytest.raises(TokenfuseError, match="the lines add up to"):
        export(db, tmp_path, JUNE)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_quarter_hours_without_a_price_are_named_and_in_no_row(db: Engine, tmp_path: Path) -> None:
    generate(db)
    unpriced = NodeService(
        Deployment("lab", "prod", "new"), "http://new", "n9", "X9", 1, JUNE.start, JUNE.start + 4 * QUARTER_HOUR
    )
    with db.begin() as connection:
        declare_service(connection, unpriced, "test")
    assert close_all(db, JUNE.end, since=JUNE.start).unpriced == 4
    done = export(db, tmp_path, JUNE)
    assert done.totals[0]["effective"] == 280
    assert [(gap["deployment"], gap["windows"]) for gap in done.unpriced] == [("lab/prod/new", 4)]
    assert "X9" in done.unpriced[0]["reason"]


@pytest.mark.parametrize("kinds", ["both", "allocated", "origin"])
def test_bought_tokens_are_rows_of_their_own_beside_gpu_hours(db: Engine, tmp_path: Path, second: Engine, kinds: str) -> None:
    generate(db)
    with db.begin() as connection:
        for table in ("ledger_window", "ledger_line", "ledger_head", *(name for name, _, _ in TABLES if "team" not in name)):
            connection.execute(text(f"UPDATE {table} SET cluster = 'vendor', namespace = 'deepseek' WHERE model_id = 'code'"))
    done = export(db, tmp_path / "out", JUNE, rows=kinds)
    (total,) = done.totals
    assert (total["effective"], total["origin"]) == (280, 0 if kinds == "allocated" else 220)
    bought = [row for row in rows_of(done.periods[0].file) if row["PublisherName"] == "deepseek"]
    assert {row["x_RowKind"] for row in bought} == {"allocated"}
    takes = Takes(second, tmp_path, "focus")
    takes.path(tmp_path / "out")
    assert takes.by("bucket") == {"gpu": 220, "vendor_api": 60}


def test_nothing_closed_writes_nothing(db: Engine, tmp_path: Path) -> None:
    done = export(db, tmp_path, JUNE)
    assert (done.periods, done.totals, list(tmp_path.rglob("*"))) == ([], [], [])


def test_a_time_within_an_hour_is_refused(db: Engine, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="--to: is not the start of a UTC hour"):
        export(db, tmp_path, Window(BEFORE.start, BEFORE.start + QUARTER_HOUR))


@pytest.mark.realdata
def test_the_recordings_ledger_comes_back_with_equal_totals(db: Engine, tmp_path: Path, realdata: Path, second: Engine) -> None:
    start = AFTER.replace(year=2026, month=11, day=30, hour=11)
    whole = Window(start, start.replace(hour=13))
    with db.begin() as connection:
        import_rates(connection, default_rate_card().rates, start)
        used = Window(start.replace(minute=45), start.replace(hour=12, minute=15))
        declare_service(connection, NodeService(PLACE, TARGET, "node1", "A10G", 1, used.start, used.end), "recording")
        load(connection, realdata / "recordings" / "open")
    assert close_due(db, AFTER, since=start).failures == []
    done = export(db, tmp_path / "out", whole, now=AFTER)
    assert done.totals[0]["effective"] == Decimal("0.503")
    takes = Takes(second, tmp_path, "focus")
    takes.now = AFTER
    takes.path(tmp_path / "out")
    (sums,) = takes.charges()
    assert (sums["billed_cost"], sums["effective_cost"]) == (Decimal("0.503"), Decimal("0.503"))
