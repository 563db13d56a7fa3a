"""Cost books: depreciation over a life, a month's lines over days and nodes, power by tariff and PUE; everything adds up."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.book_power import Energy, PowerEntry, Prices, Reading, day_window, known_energy, power_lines
from core.cost_book import Asset, BookLine, CostBook, RunningCost, month_lines, totals
from core.depreciation import StraightLine, add_months
from core.errors import BadInput
from core.money import money, total
from core.rates import Rate
from core.tariff import parse_band
from core.windows import Window

JULY, END_OF_JULY = date(2026, 7, 1), date(2026, 8, 1)
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def life(
    price: str = "120000", residual: str = "0", months: int = 60, start: date = date(2026, 1, 15), method: str = "month"
) -> StraightLine:
    return StraightLine(Decimal(price), Decimal(residual), start, months, method)  # type: ignore[arg-type]


def asset(
    id: str = "srv", nodes: tuple[str, ...] = ("n1",), gpus: int = 8, since: date = date(2026, 1, 15), **more: object
) -> Asset:
    return Asset(id, nodes, "H100-80GB", gpus, life(start=since), since, **more)  # type: ignore[arg-type]


def book(*assets: Asset, costs: tuple[RunningCost, ...] = ()) -> CostBook:
    return CostBook("racks", "Example GmbH", "EUR", assets, costs)


# --- depreciation ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "line", "month", "amount"),
    [
        ("a month of sixty", life(), JULY, "2000"),
        ("the month of purchase is whole", life(), date(2026, 1, 1), "2000"),
        ("before it", life(), date(2025, 12, 1), "0"),
        ("its last", life(), date(2030, 12, 1), "2000"),
        ("after its life", life(), date(2031, 1, 1), "0"),
        ("rounded to cents", life("100", months=36), JULY, "2.78"),
        ("the remainder in the last month", life("100", months=36), date(2028, 12, 1), "2.70"),
        ("less the residual", life(residual="60000"), JULY, "1000"),
        ("by days: 17 of 365", life("365", months=12, method="day"), date(2026, 1, 1), "17.00"),
        ("by days: a whole month", life("365", months=12, method="day"), JULY, "31.00"),
        ("by days: its last fourteen", life("365", months=12, method="day"), date(2027, 1, 1), "14.00"),
    ],
)
def test_straight_line(what: str, line: StraightLine, month: date, amount: str) -> None:
    assert line.of_month(month) == Decimal(amount), what


CENTS = st.decimals(min_value=0, max_value=10**7, places=2)


@given(CENTS, CENTS, st.dates(date(2000, 1, 1), date(2100, 1, 1)), st.integers(1, 130), st.sampled_from(["month", "day"]),
       st.integers(0, 6))  # fmt: skip
def test_a_whole_life_is_price_less_residual(
    one: Decimal, other: Decimal, start: date, months: int, method: str, decimals: int
) -> None:
    line = StraightLine(max(one, other), min(one, other), start, months, method, decimals)  # type: ignore[arg-type]
    first = start.replace(day=1)
    amounts = [line.of_month(add_months(first, n)) for n in range(-1, months + 3)]
    assert total(amounts) == line.whole
    assert all(amount >= -line.whole for amount in amounts)


@pytest.mark.parametrize(
    ("field", "given_values"),
    [
        ("residual", {"residual": "200000"}), ("useful_life_months", {"months": 0}), ("depreciation", {"method": "week"}),
        ("price", {"price": "-1"}),
    ],
)  # fmt: skip
def test_a_wrong_life_is_named(field: str, given_values: dict[str, object]) -> None:
    with pytest.raises(BadInput) as caught:
        life(**given_values)  # type: ignore[arg-type]
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("field", "build"),
    [
        ("monthly", lambda: RunningCost("c", "rent", Decimal("-0.01"), JULY)),
        ("vat_percent", lambda: RunningCost("c", "rent", Decimal(1), JULY, vat_percent=Decimal(-1))),
        ("vat", lambda: asset(vat=Decimal(-1))),
        ("kwh", lambda: PowerEntry("p", ("n1",), "declared", "rack", declared={JULY: Decimal(-1)})),
    ],
)
def test_what_is_below_zero_is_refused(field: str, build: Callable[[], object]) -> None:
    with pytest.raises(BadInput) as caught:
        build()
    assert caught.value.field == field


# --- a month --------------------------------------------------------------------------------------------------------


def by_node(lines: tuple[BookLine, ...]) -> dict[str, Decimal]:
    return {node: total(line.amount for line in lines if line.node == node) for node in sorted({line.node for line in lines})}


def test_a_month_lands_on_its_days_and_nodes() -> None:
    found = month_lines(book(asset(nodes=("n1", "n2"))), JULY, END_OF_JULY)
    assert by_node(found.lines) == {"n1": Decimal(1000), "n2": Decimal(1000)}
    assert {line.hours for line in found.lines} == {Decimal(24)}
    assert len(found.lines) == 62


def test_days_in_service_bear_the_month() -> None:
    found = month_lines(book(asset(since=date(2026, 7, 22))), JULY, END_OF_JULY)
    assert ({line.day.day for line in found.lines}, by_node(found.lines)) == (set(range(22, 32)), {"n1": Decimal(2000)})


def test_a_month_issued_day_by_day_never_changes_what_was_issued() -> None:
    whole = month_lines(book(asset(), costs=(RunningCost("colo", "rent", Decimal(310), JULY),)), JULY, END_OF_JULY)
    part = month_lines(book(asset(), costs=(RunningCost("colo", "rent", Decimal(310), JULY),)), JULY, date(2026, 7, 11))
    assert part.lines == tuple(line for line in whole.lines if line.day < date(2026, 7, 11))
    assert total(line.amount for line in part.lines if line.kind == "rent") == 100


@pytest.mark.parametrize(
    ("what", "cost", "expected"),
    [
        ("by GPUs", RunningCost("c", "rent", Decimal(930), JULY), {"a": "620", "b": "310"}),
        ("by nodes", RunningCost("c", "rent", Decimal(620), JULY, spread="nodes"), {"a": "310", "b": "310"}),
        ("to nobody", RunningCost("c", "staff", Decimal(300), JULY, spread="none"), {"": "300"}),
        ("over named nodes", RunningCost("c", "support", Decimal(300), JULY, over=("b",)), {"b": "300"}),
        ("for part of the month", RunningCost("c", "rent", Decimal(310), date(2026, 7, 22), spread="none"), {"": "100"}),
        ("until before", RunningCost("c", "rent", Decimal(310), date(2026, 1, 1), JULY, spread="none"), {}),
    ],
)
def test_running_costs_are_spread_by_their_rule(what: str, cost: RunningCost, expected: dict[str, str]) -> None:
    racks = book(asset("a", ("a",), 8), asset("b", ("b",), 4), costs=(cost,))
    lines = tuple(line for line in month_lines(racks, JULY, END_OF_JULY).lines if line.kind != "depreciation")
    assert by_node(lines) == {node: Decimal(amount) for node, amount in expected.items()}, what


def test_a_day_without_a_node_in_service_is_nobodys_and_not_lost() -> None:
    racks = book(asset(since=date(2026, 7, 17)), costs=(RunningCost("c", "rent", Decimal(310), JULY),))
    rent = tuple(line for line in month_lines(racks, JULY, END_OF_JULY).lines if line.kind == "rent")
    assert by_node(rent) == {"": Decimal(160), "n1": Decimal(150)}


def test_taxes_stand_apart() -> None:
    racks = book(
        asset(since=date(2026, 7, 3), vat=Decimal("22800")),
        costs=(RunningCost("c", "rent", Decimal("99.99"), JULY, vat_percent=Decimal(19)),),
    )
    found = month_lines(racks, JULY, END_OF_JULY)
    assert totals(found.lines) == {"depreciation": Decimal(2000), "rent": Decimal("99.99"), "tax": Decimal("22819.00")}
    assert {line.node for line in found.lines if line.kind == "tax"} == {""}


def test_a_depreciated_machine_still_has_its_hours() -> None:
    found = month_lines(book(asset()), date(2032, 1, 1), date(2032, 2, 1))
    assert (total(line.amount for line in found.lines), len(found.lines)) == (0, 31)


def test_what_is_not_depreciated_when_a_machine_leaves_is_said() -> None:
    racks = book(asset(until=date(2026, 7, 11)))
    found = month_lines(racks, JULY, END_OF_JULY)
    assert found.notes == ("srv left service on 2026-07-11: 106000 of its price is in no month",)
    assert (len(found.lines), by_node(found.lines)) == (10, {"n1": Decimal(2000)})
    assert month_lines(racks, date(2026, 8, 1), date(2026, 9, 1)).lines == ()


@given(st.lists(st.tuples(st.integers(1, 9), st.dates(date(2026, 6, 20), date(2026, 8, 5))), min_size=1, max_size=5), CENTS,
       st.sampled_from(["gpus", "nodes", "none"]))  # fmt: skip
def test_lines_add_up_to_their_entries(machines: list[tuple[int, date]], monthly: Decimal, spread: str) -> None:
    assets = [asset(f"a{n}", (f"n{n}",), gpus, since) for n, (gpus, since) in enumerate(machines)]
    cost = RunningCost("c", "rent", monthly, date(2026, 1, 1), spread=spread)  # type: ignore[arg-type]
    sums = totals(month_lines(book(*assets, costs=(cost,)), JULY, END_OF_JULY).lines)
    in_july = [one for one in assets if one.since < END_OF_JULY]
    assert sums.get("rent", Decimal(0)) == monthly
    assert sums.get("depreciation", Decimal(0)) == 2000 * len(in_july)


def test_a_node_stands_in_one_asset() -> None:
    with pytest.raises(BadInput, match="is given twice"):
        book(asset("a"), asset("b"))
    with pytest.raises(BadInput, match="is no node of this book"):
        book(asset(), costs=(RunningCost("c", "rent", Decimal(1), JULY, over=("n9",)),))


# --- power ----------------------------------------------------------------------------------------------------------


def kwh(price: str, sku: str = "rack", currency: str = "EUR", band: str = "", since: datetime = LONG_AGO) -> Rate:
    return Rate("kwh", sku, money(price, currency), "contracted", "contract", since, band=parse_band(band) if band else None)


def pue(factor: str, sku: str = "rack", since: datetime = LONG_AGO) -> Rate:
    return Rate("pue", sku, money(factor, "XXX"), "effective", "measured", since)


def cost_of(entry: PowerEntry, rates: list[Rate], nodes: tuple[str, ...] = ("n1",)) -> tuple[Decimal, Decimal]:
    energy = known_energy(book(asset(nodes=nodes)), entry, JULY, END_OF_JULY)
    lines = power_lines(entry, energy.energy, Prices(rates, "EUR"), END_OF_JULY)
    return total(line.quantity or Decimal(0) for line in lines), total(line.amount for line in lines)


DECLARED = PowerEntry("p", ("n1",), "declared", "rack", declared={JULY: Decimal("744")})


@pytest.mark.parametrize(
    ("what", "rates", "amount"),
    [
        ("one price", [kwh("0.20")], "148.8"),
        ("times PUE", [kwh("0.20"), pue("1.5")], "223.2"),
        ("a PUE of the node before its site's", [kwh("0.20"), pue("1.5"), pue("2", "n1")], "297.6"),
        (
            "a PUE from the 17th on: half of the month",
            [kwh("0.20"), pue("2", since=datetime(2026, 7, 16, 12, tzinfo=UTC))],
            "223.2",
        ),
        ("a price of the node before its site's", [kwh("0.20"), kwh("0.10", "n1")], "74.4"),
        ("eight hours a day at night", [kwh("0.20"), kwh("0.05", band="all 22:00-06:00 UTC")], "111.6"),
        ("weekends: 8 days of July", [kwh("0.20"), kwh("0", band="sat,sun 00:00-24:00 UTC")], "110.4"),
    ],
)
def test_a_kwh_is_priced_at_its_hour(what: str, rates: list[Rate], amount: str) -> None:
    assert cost_of(DECLARED, rates) == (Decimal(744), Decimal(amount)), what


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ([], "no tariff for 24 kWh of n1 in the hours from 2026-07-01"),
        ([kwh("0.2", band="all 08:00-20:00 UTC")], "no tariff for"),
        ([kwh("0.2", since=datetime(2026, 7, 2, tzinfo=UTC))], "no tariff for"),
        ([kwh("0.2", currency="USD")], "is in USD, the book in EUR"),
    ],
)  # fmt: skip
def test_a_kwh_without_a_tariff_is_unknown_not_zero(rates: list[Rate], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        cost_of(DECLARED, rates)


def test_meter_readings_are_spread_over_the_time_between_them() -> None:
    seen = ((date(2026, 6, 30), 1000), (date(2026, 7, 10), 1100), (date(2026, 8, 1), 1320))
    readings = tuple(Reading(day_window(day).start, Decimal(total)) for day, total in seen)
    entry = PowerEntry("p", ("n1", "n2"), "readings", "rack", readings)
    assert cost_of(entry, [kwh("1")], nodes=("n1", "n2")) == (Decimal(310), Decimal(310))


def test_days_without_readings_on_both_sides_are_named() -> None:
    readings = (Reading(datetime(2026, 7, 3, tzinfo=UTC), Decimal(0)), Reading(datetime(2026, 7, 31, tzinfo=UTC), Decimal(28)))
    found = known_energy(book(asset()), PowerEntry("p", ("n1",), "readings", "rack", readings), JULY, END_OF_JULY)
    assert total(one.kwh for one in found.energy) == 28
    assert found.unmeasured == ("p: no readings on both sides of 2026-07-01 and 2 more days",)


def test_a_meter_does_not_run_backwards() -> None:
    readings = (Reading(datetime(2026, 7, 1, tzinfo=UTC), Decimal(10)), Reading(datetime(2026, 8, 1, tzinfo=UTC), Decimal(9)))
    with pytest.raises(BadInput, match="not fall"):
        PowerEntry("p", ("n1",), "readings", "rack", readings)


def test_a_month_without_a_declared_kwh_is_said() -> None:
    found = known_energy(book(asset()), DECLARED, date(2026, 8, 1), date(2026, 9, 1))
    assert (found.energy, found.unmeasured) == ((), ("p: no kWh is declared for 2026-08",))


def test_energy_over_midnight_is_two_days() -> None:
    start = datetime(2026, 7, 1, 23, 30, tzinfo=UTC)
    lines = power_lines(
        DECLARED, [Energy("n1", Window(start, start + timedelta(hours=1)), Decimal(3))], Prices([kwh("1")], "EUR"), END_OF_JULY
    )
    assert [(line.day.day, line.amount) for line in lines] == [(1, Decimal("1.5")), (2, Decimal("1.5"))]
    assert day_window(date(2026, 7, 2)).start == start + timedelta(minutes=30)


SITE = [kwh("0.24"), pue("1.28")]


@pytest.mark.parametrize(
    ("what", "declared", "decimals", "amount"),
    [
        ("nothing to round", "1000", 2, "307.20"),
        ("half a cent and more", "1000.02", 2, "307.21"),
        ("whole yen", "1000", 0, "307"),
        ("a month under one cent", "0.01", 2, "0"),
    ],
)
def test_a_months_power_is_rounded_once(what: str, declared: str, decimals: int, amount: str) -> None:
    """1000 kWh × 0.24 × 1.28 is 307.20 however many nodes and days share it; the kWh add up to what was declared."""
    entry = PowerEntry("p", ("n1", "n2"), "declared", "rack", declared={JULY: Decimal(declared)})
    energy = known_energy(book(asset(nodes=("n1", "n2"))), entry, JULY, END_OF_JULY)
    lines = power_lines(entry, energy.energy, Prices(SITE, "EUR", decimals), END_OF_JULY)
    assert total(line.amount for line in lines) == Decimal(amount), what
    assert total(line.quantity or Decimal(0) for line in lines) == Decimal(declared)
    assert len(lines) == 62
    assert all(line.amount >= 0 for line in lines)


SEEN = st.tuples(st.integers(0, 30), st.sampled_from(["n1", "n2", "n3"]), st.decimals(min_value=0, max_value=500, places=9))


@given(st.lists(SEEN, max_size=40), st.integers(1, 31), st.integers(0, 4))
def test_metered_power_adds_up_and_what_was_issued_stays(seen: list[tuple[int, str, Decimal]], day: int, decimals: int) -> None:
    """Any energy, any day of issue: the month is its exact cost rounded once, and its first days are those issued before."""
    entry = PowerEntry("p", ("n1", "n2", "n3"), "gpus", "rack")
    energy = [Energy(node, day_window(JULY + timedelta(days=n)), drawn) for n, node, drawn in seen]
    prices, until = Prices(SITE, "EUR", decimals), JULY + timedelta(days=day)
    whole = power_lines(entry, energy, prices, END_OF_JULY)
    exact = total(one.kwh for one in energy) * Decimal("0.3072")
    assert total(line.amount for line in whole) == round(exact, decimals)
    assert all(line.amount >= 0 for line in whole)
    assert power_lines(entry, energy, prices, until) == [line for line in whole if line.day < until]
