"""Price lists of model vendors: what names a model, what holds when, and what is refused. Nothing is guessed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import BadInput
from core.tokens import TokenCounts
from core.vendor_book import ModelAlias, PriceBook, quote, quotes
from core.vendor_list import CLASS_EDGES, ModelSheet, PriceEntry, PromptClass, Rule, prompt_class, sold_as
from core.vendor_price import TokenPrices, vendor_cost
from ingest.prices.genai_prices import read_genai_prices
from ingest.prices.litellm_prices import read_litellm_prices
from ingest.prices.vendor_card import read_vendor_card
from ingest.prices.vendor_sheets import list_date, unpacked

START = datetime(2026, 1, 1, tzinfo=UTC)
JULY = datetime(2026, 7, 1, tzinfo=UTC)
GENAI = "genai-prices_2026-08-21_v2_data.json"
LITELLM = "litellm_1.110.2_model_prices_and_context_window_backup.json.gz"


def usd(text: str, out: str | None = None, **more: Any) -> PriceEntry:
    return PriceEntry(TokenPrices("USD", Decimal(text), Decimal(out or text)), **more)


def sheet(
    model: str, *entries: PriceEntry, rules: tuple[Rule, ...] = (), source: str = "genai-prices", **more: Any
) -> ModelSheet:
    values = {"vendor": "acme", "valid_from": START, "label": source, **more}
    return ModelSheet(source, model=model, rules=(Rule("exact", model), *rules), entries=entries or (usd("1"),), **values)


@pytest.mark.parametrize(
    ("kind", "text", "model", "named"),
    [
        ("exact", "deepseek-chat", "DeepSeek-Chat", True),
        ("exact", "deepseek-chat", "deepseek-chat-v3", False),
        ("prefix", "deepseek-r1", "deepseek-r1", True),
        ("prefix", "deepseek-r1", "DeepSeek-R1-Distill-Qwen-32B", False),
        ("prefix", "claude-sonnet-4-5", "claude-sonnet-4-5-20250929", True),
        ("prefix", "claude-opus-4", "claude-opus-4-9", False),
        ("prefix", "gpt-4o", "gpt-4o-2024-08-06", True),
        ("prefix", "gpt-4o", "gpt-4o-mini", False),
        ("prefix", "gpt-4", "gpt-4-0613", True),
        ("prefix", "gpt-4", "gpt-4-8192", False),
        ("prefix", "mistral-large", "mistral-large-2407", True),
        ("prefix", "mistral-large", "mistral-large-latest", True),
        ("regex", r"^grok-4\.3-\d{8}$", "grok-4.3-20260101", True),
        ("regex", r"grok-4", "x-ai/grok-4", False),
        ("contains", "nova-lite", "us.amazon.nova-lite-v1:0", False),
        ("suffix", "gemini-2.0-flash", "models/gemini-2.0-flash", False),
    ],
)
def test_a_rule_names_a_model_beyond_doubt_or_not_at_all(kind: Any, text: str, model: str, named: bool) -> None:
    assert Rule(kind, text).names(model) is named


def test_a_rule_that_guesses_is_a_hint_and_no_price() -> None:
    book = PriceBook((sheet("nova", rules=(Rule("contains", "nova-lite"),)),))
    found = quote(book, "acme", "us.nova-lite-v1:0", JULY)
    assert found.prices is None
    assert "would take it for acme/nova" in found.hint
    assert "alias add acme/us.nova-lite-v1:0 acme/nova" in found.hint


def test_the_whole_request_is_sold_at_the_higher_price_above_the_limit() -> None:
    long = usd("6", above_tokens=200_000)
    book = PriceBook((sheet("m", usd("3"), long),))
    at = [quote(book, "acme", "m", JULY, prompt=prompt_class(n)).prices for n in (1, 200_000, 200_001, 5_000_000)]
    assert [p.input if p else None for p in at] == [3, 3, 6, 6]


def test_a_limit_inside_a_kept_class_of_lengths_is_unknown() -> None:
    book = PriceBook((sheet("m", usd("3"), usd("6", above_tokens=48_000)),))
    assert "lies inside a class" in quote(book, "acme", "m", JULY, prompt=prompt_class(40_000)).reason


@given(st.integers(0, 3_000_000))
def test_a_length_lies_in_its_class(tokens: int) -> None:
    found = prompt_class(tokens)
    assert found.above < tokens or found.above == 0
    assert found.upto is None or tokens <= found.upto
    assert not any(found.above < edge < (found.upto or edge) for edge in CLASS_EDGES)


@pytest.mark.parametrize(("clock", "price"), [("00:15", "2"), ("00:30", "1"), ("16:15", "1"), ("16:30", "2"), ("23:45", "2")])
def test_times_of_day_hold_half_open(clock: str, price: str) -> None:
    day = usd("1", day_from=time(0, 30), day_to=time(16, 30))
    book = PriceBook((sheet("m", usd("2"), day),))
    at = datetime.combine(JULY, time.fromisoformat(clock), UTC)
    found = quote(book, "acme", "m", at).prices
    assert found is not None
    assert found.input == Decimal(price)


def test_times_of_day_follow_their_zone_and_cross_midnight() -> None:
    night = usd("1", day_from=time(22), day_to=time(6), zone_name="Asia/Shanghai")
    book = PriceBook((sheet("m", usd("2"), night),))
    prices = {hour: quote(book, "acme", "m", JULY.replace(hour=hour)).prices for hour in (13, 14, 21, 22)}
    assert {hour: p.input if p else None for hour, p in prices.items()} == {13: 2, 14: 1, 21: 1, 22: 2}


def test_a_later_list_does_not_change_the_past() -> None:
    """The trap of deepseek-v4-flash: a peak window that begins later was applied to an earlier night."""
    later = datetime(2026, 9, 1, tzinfo=UTC)
    peak = usd("1.5", day_from=time(1), day_to=time(4))
    book = PriceBook((sheet("deepseek-v4-flash", usd("0.14")), sheet("deepseek-v4-flash", usd("0.14"), peak, valid_from=later)))
    two = [quote(book, "acme", "deepseek-v4-flash", at.replace(hour=2)).prices for at in (JULY, later)]
    assert [p.input if p else None for p in two] == [Decimal("0.14"), Decimal("1.5")]


def test_a_list_says_nothing_of_the_time_before_it() -> None:
    found = quote(PriceBook((sheet("m", valid_from=JULY),)), "acme", "m", START)
    assert (found.prices, "no price list names acme/m" in found.reason) == (None, True)


def test_a_model_that_left_the_list_has_no_price_from_then_on() -> None:
    gone = ModelSheet("genai-prices", "acme", "m", (Rule("exact", "m"),), (), JULY, "genai-prices")
    book = PriceBook((sheet("m"), gone))
    assert quote(book, "acme", "m", START).prices is not None
    assert quote(book, "acme", "m", JULY).prices is None


def test_where_lists_disagree_the_preferred_one_counts_and_the_other_is_shown() -> None:
    two = (sheet("m", usd("0.28"), source="litellm-prices"), sheet("m", usd("0.27")))
    for order, first in ((("genai-prices", "litellm-prices"), "0.27"), (("litellm-prices",), "0.28")):
        found = quotes(PriceBook(two, (), order), "acme", "m", JULY)
        assert [str(q.prices.input) for q in found if q.prices] == [first, {"0.27": "0.28", "0.28": "0.27"}[first]]
        counts = quote(PriceBook(two, (), order), "acme", "m", JULY).prices
        assert counts is not None
        assert str(counts.input) == first


def test_a_way_of_selling_is_priced_by_the_first_list_that_has_it() -> None:
    two = (sheet("m", usd("2")), sheet("m", usd("2"), usd("1", tier="batch"), source="litellm-prices"))
    found = quote(PriceBook(two), "acme", "m", JULY, sold_as("BATCHES"))
    assert (found.source, found.prices and found.prices.input) == ("litellm-prices", 1)
    assert "has no flex price" in quote(PriceBook(two), "acme", "m", JULY, "flex").reason


def test_two_entries_that_name_a_model_at_different_prices_are_unknown() -> None:
    both = (sheet("a", rules=(Rule("exact", "m"),)), sheet("b", usd("2"), rules=(Rule("exact", "m"),)))
    assert "names it twice" in quote(PriceBook(both), "acme", "m", JULY).reason


def test_an_alias_is_dated_and_may_choose_the_list() -> None:
    word = ModelAlias("price", "acme", "hf/Model-V3", "acme", "m", "", JULY, None, "kim", "the same weights")
    book = PriceBook((sheet("m"), sheet("m", usd("9"), source="litellm-prices")), (word,))
    assert quote(book, "acme", "hf/Model-V3", START).prices is None
    found = quote(book, "acme", "hf/Model-V3", JULY)
    assert (found.list_model, found.prices and found.prices.input) == ("m", 1)
    chosen = PriceBook(book.sheets, (ModelAlias("price", "acme", "m", "acme", "m", "litellm-prices", START, None, "kim", "why"),))
    nine = quote(chosen, "acme", "m", JULY).prices
    assert nine is not None
    assert nine.input == 9


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: PriceEntry(TokenPrices("USD", Decimal(0), Decimal(1))), "price"),
        (lambda: usd("1", day_from=time(0, 20), day_to=time(1)), "day_from"),
        (lambda: usd("1", day_from=time(0)), "day_from"),
        (lambda: usd("1", zone_name="Mars/Base"), "zone"),
        (lambda: Rule("regex", "("), "rule"),
        (lambda: sheet("m", valid_from=START.replace(minute=7)), "valid_from"),
    ],
)
def test_an_entry_that_cannot_be_kept_is_refused(make: Callable[[], object], field: str) -> None:
    with pytest.raises(BadInput) as caught:
        make()
    assert caught.value.field == field


LITE: dict[str, Any] = {
    "sample_spec": {"litellm_provider": "one of …", "input_cost_per_token": 0.0},
    "acme/chat": {"litellm_provider": "acme", "input_cost_per_token": 2.8e-07, "output_cost_per_token": 4.2e-07,
                  "cache_read_input_token_cost": 2.8e-08, "cache_creation_input_token_cost": 0.0,
                  "input_cost_per_token_batches": 1.4e-07, "output_cost_per_token_batches": 2.1e-07,
                  "input_cost_per_token_above_200k_tokens": 5.6e-07, "output_cost_per_token_flex": 1e-07},
    "acme/zero": {"litellm_provider": "acme", "input_cost_per_token": 0.0, "output_cost_per_token": 0.0},
    "acme/slip": {"litellm_provider": "acme", "input_cost_per_token": 0.015, "output_cost_per_token": 0.015},
    "acme/asked": {"litellm_provider": "acme", "input_cost_per_token": 1e-06, "input_cost_per_request": 0.01},
    "acme/two": {"litellm_provider": "acme", "input_cost_per_token": 1e-06, "cache_read_input_token_cost": 1e-07,
                 "input_cost_per_token_cache_hit": 2e-07},
    "acme/image": {"litellm_provider": "acme", "output_cost_per_image": 0.04},
    "nobody": {"mode": "search"},
}  # fmt: skip


def test_litellm_prices_keep_their_digits_and_zero_is_no_price() -> None:
    found = read_litellm_prices(json.dumps(LITE).encode(), "f.json", START, "litellm")
    assert [s.model for s in found.sheets] == ["chat"]
    entries = {(e.tier, e.above_tokens): e.prices for e in found.sheets[0].entries}
    base, long = entries["standard", 0], entries["standard", 200_000]
    assert (str(base.input), str(base.output), str(base.cache_read)) == ("0.28", "0.42", "0.028")
    assert base.cache_write_5m is None
    assert (str(long.input), str(long.output)) == ("0.56", "0.42")
    assert (str(entries["batch", 0].input), entries["flex", 0].input) == ("0.14", None)
    assert found.unknown_zeros == 3
    assert dict(found.left_out) == {"no price per token": 2, "no vendor": 1}
    reasons = {one.model: one.reason for one in found.refused}
    assert set(reasons) == {"acme/slip", "acme/asked", "acme/two"}
    assert "outside 0.0001..1000 USD per million tokens (value '15000')" in reasons["acme/slip"]


def test_genai_prices_are_read_with_their_conditions() -> None:
    models = [
        {"id": "m", "match": {"or": [{"starts_with": "m"}, {"contains": "mm"}]}, "prices": [
            {"prices": {"input_mtok": {"base": 1, "tiers": [{"start": 200000, "price": 2}]}, "output_mtok": 3}},
            {"constraint": {"start_date": "2026-09-01"}, "prices": {"input_mtok": 4, "output_mtok": 5}}]},
        {"id": "n:free", "match": {"equals": "n:free"}, "prices": {}},
        {"id": "per-request", "match": {"equals": "p"}, "prices": {"input_mtok": 1, "requests_kcount": 12}},
        {"id": "slip", "match": {"equals": "s"}, "prices": {"input_mtok": 15000}},
        {"id": "odd", "match": {"sounds_like": "s"}, "prices": {"input_mtok": 1}},
        {"id": "silent", "match": {"equals": "q"}, "prices": {}},
    ]  # fmt: skip
    found = read_genai_prices(json.dumps([{"id": "acme", "models": models}]).encode(), "data.json", START, "genai-prices")
    book = PriceBook(tuple(found.sheets))
    at = {(m, n): quote(book, "acme", "m", datetime(2026, m, 1, tzinfo=UTC), prompt=prompt_class(n)).prices
          for m in (8, 9) for n in (1, 200_001)}  # fmt: skip
    assert {key: str(p.input) if p else None for key, p in at.items()} == {
        (8, 1): "1", (8, 200_001): "2", (9, 1): "4", (9, 200_001): "4",
    }  # fmt: skip
    free = quote(book, "acme", "n:free", JULY)
    assert free.free
    assert {one.model for one in found.refused} == {"acme/per-request", "acme/slip", "acme/odd"}
    assert (dict(found.left_out), found.rules_not_used) == ({"no price per token": 1}, 1)


@pytest.mark.parametrize("read", [read_genai_prices, read_litellm_prices])
@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b'{"a": 1}', b'[{"id": "x"}]', b"\xff"])
def test_a_file_that_is_no_such_list_is_named(read: Callable[..., Any], body: bytes) -> None:
    with pytest.raises(BadInput) as caught:
        read(body, "prices.json", START, "")
    assert caught.value.where.startswith("prices.json")


CARD = b"""
version: 1
label: our contract
currency: CNY
models:
  - vendor: volcengine
    model: deepseek-v3-2-251201
    valid_from: 2026-03-01
    prices:
      - {input: 2, cache_read: 0.4, output: 3}
      - {input: 4, cache_read: 0.4, output: 6, above_tokens: 32000}
      - {input: 1, cache_read: 0.2, output: 1.5, tier: batch}
"""


def test_a_card_holds_what_no_list_has() -> None:
    found = read_vendor_card(CARD, "card.yaml", START, "card")
    book = PriceBook(tuple(found.sheets))
    got = [quote(book, "volcengine", "deepseek-v3-2-251201", JULY, tier, prompt_class(n)).prices
           for tier, n in (("standard", 1), ("standard", 32_001), ("batch", 1))]  # fmt: skip
    assert [(p.currency, str(p.input)) for p in got if p] == [("CNY", "2"), ("CNY", "4"), ("CNY", "1")]
    assert found.sheets[0].label == "our contract"


@pytest.mark.parametrize(
    ("old", "new", "where", "field"),
    [
        (b"input: 2,", b"input: 0,", "card.yaml:10", "input"),
        (b"input: 2,", b"input: two,", "card.yaml:10", "price"),
        (b"tier: batch", b"teir: batch", "card.yaml:12", "teir"),
        (b"    model: deepseek-v3-2-251201\n", b"", "card.yaml:6", "model"),
        (b"version: 1", b"version: 2", "card.yaml", "version"),
    ],
)
def test_a_fault_of_a_card_is_named_by_line_and_field(old: bytes, new: bytes, where: str, field: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_vendor_card(CARD.replace(old, new), "card.yaml", START, "")
    assert (caught.value.where, caught.value.field) == (where, field)


def test_a_cut_gzip_file_is_refused_and_a_file_name_tells_the_day() -> None:
    whole = gzip.compress(b"[]")
    assert unpacked(whole, "f") == b"[]"
    with pytest.raises(BadInput, match="not a whole gzip file"):
        unpacked(whole[:-6], "f")
    assert [str(list_date(name)) for name in (GENAI, "prices.json", "x_2026-13-01")] == ["2026-08-21", "None", "None"]


@pytest.fixture(scope="module")
def both(realdata: Path) -> PriceBook:
    prices = realdata / "billing" / "prices"
    genai = read_genai_prices((prices / GENAI).read_bytes(), GENAI, START, "genai-prices 2026-08-21")
    litellm = read_litellm_prices(gzip.decompress((prices / LITELLM).read_bytes()), LITELLM, START, "litellm-prices")
    assert (len(genai.sheets), len(genai.refused), genai.left_out.total()) == (1453, 4, 9)
    assert (len(litellm.sheets), len(litellm.refused), litellm.left_out.total()) == (3796, 6, 1038)
    return PriceBook((*genai.sheets, *litellm.sheets))


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("model", "hour", "tokens", "cost"),
    [
        ("deepseek-chat", 12, TokenCounts(700_000, 300_000, output=200_000), "0.430"),
        ("deepseek-chat", 20, TokenCounts(700_000, 300_000, output=200_000), "0.215"),
        ("deepseek-v4-pro", 12, TokenCounts(14_500, 21_600, output=1_200), "0.0074298"),
        ("deepseek-v4-flash", 2, TokenCounts(1_000_000, output=1_000_000), "0.42"),
        ("DeepSeek-R1-Distill-Qwen-32B", 12, TokenCounts(1), None),
        ("deepseek-ai/DeepSeek-V3", 12, TokenCounts(1), None),
        ("qwen3-max", 12, TokenCounts(1), None),
        ("glm-4.6", 12, TokenCounts(1), None),
    ],
)
def test_the_examples_of_the_facts(both: PriceBook, model: str, hour: int, tokens: TokenCounts, cost: str | None) -> None:
    found = quote(both, "deepseek", model, JULY.replace(hour=hour))
    got = vendor_cost(tokens, found.prices).cost if found.prices else None
    assert (got.amount if got else None) == (Decimal(cost) if cost else None)


@pytest.mark.realdata
def test_the_two_real_lists_disagree_on_deepseek_chat(both: PriceBook) -> None:
    found = quotes(both, "deepseek", "deepseek-chat", JULY.replace(hour=12))
    assert [(q.source, str(q.prices.input), str(q.prices.output)) for q in found if q.prices] == [
        ("genai-prices", "0.27", "1.1"), ("litellm-prices", "0.28", "0.42"),
    ]  # fmt: skip


@pytest.mark.realdata
def test_no_price_of_the_real_lists_is_zero_unless_it_is_free(both: PriceBook) -> None:
    zeros = [s for s in both.sheets for e in s.entries if not e.free and any(p == 0 for _, p in e.prices.named())]
    assert zeros == []
    assert quote(both, "volcengine", "deepseek-v3-2-251201", JULY).prices is None


def test_a_prompt_class_without_end_is_above_every_limit() -> None:
    book = PriceBook((sheet("m", usd("3"), usd("6", above_tokens=1_000_000)),))
    found = quote(book, "acme", "m", JULY, prompt=PromptClass(1_000_000, None)).prices
    assert found is not None
    assert found.input == 6
