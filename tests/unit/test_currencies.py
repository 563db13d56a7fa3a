"""Three letters are a currency only where ISO 4217 says so."""

from __future__ import annotations

import pytest

from cli.settings import load
from core.currencies import CURRENCIES, require_currency
from core.errors import BadInput


@pytest.mark.parametrize("code", ["USD", "EUR", "CNY", "XOF", "JPY"])
def test_a_currency_in_use_is_taken(code: str) -> None:
    assert require_currency(code) == code
    assert load(currency=code).currency == code


@pytest.mark.parametrize(
    ("code", "hint"), [("XXX", "such as USD"), ("XAU", "did you mean"), ("usd", "USD"), ("EUT", "EUR"), ("", "such as USD")]
)
def test_other_letters_are_refused_with_what_to_write(code: str, hint: str) -> None:
    with pytest.raises(BadInput, match="ISO 4217") as refused:
        require_currency(code, "--currency")
    assert refused.value.field == "--currency"
    assert hint in refused.value.hint
    with pytest.raises(BadInput, match="currency"):
        load(currency=code)


def test_codes_are_three_capital_letters_each_once() -> None:
    assert all(len(code) == 3 and code.isupper() for code in CURRENCIES)
    assert not CURRENCIES & {"XXX", "XTS", "XAU", "XDR"}


@pytest.mark.parametrize("name", ["acme/search", "", '"', "a\n", "x" * 121])
def test_an_organisation_that_could_not_stand_in_a_path_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match="organisation"):
        load(organisation=name)
