"""Tables on a terminal and in a pipe: no key and no number is squeezed away."""

from __future__ import annotations

import sys
from decimal import Decimal

import pytest

from cli.output import print_rows
from cli.show_words import unit_cost_words

MANY = {f"input_cache_write_{number}": 1_234_567_890 + number for number in range(20)}
ROW = {"deployment": "demo/inference/llama-3.1-8b", **MANY}


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_rows_wider_than_the_terminal_are_shown_a_line_a_value(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    print_rows([ROW, ROW], as_json=False, title="Usage")
    shown = capsys.readouterr().out
    assert shown.count("demo/inference/llama-3.1-8b") == 2
    assert shown.count("1,234,567,909") == 2
    assert max(map(len, shown.splitlines())) <= columns


def test_a_table_in_a_pipe_is_as_wide_as_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([ROW], as_json=False)
    shown = capsys.readouterr().out
    assert "demo/inference/llama-3.1-8b" in shown
    assert "1,234,567,909" in shown
    assert "…" not in shown
    assert len([line for line in shown.splitlines() if "llama" in line]) == 1


def test_unit_cost_is_told_without_nested_values() -> None:
    row = {
        "deployment": "c/n/m", "requests": 2, "tokens": {"input": 10, "output": 3}, "cost": Decimal(1), "output_per_mtok": None,
        "reasons": {"output_per_mtok": "no output tokens"},
        "meta": {"state": "final", "coverage": Decimal("0.9812"), "basis": "usage", "unpriced_tokens": 7},
    }  # fmt: skip
    assert unit_cost_words(row) == {
        "deployment": "c/n/m", "requests": 2, "input_tokens": 10, "output_tokens": 3, "cost": Decimal(1), "output_per_mtok": None,
        "unpriced_tokens": 7, "state": "final", "coverage": "98.1 %", "why_unknown": "output per mtok: no output tokens",
    }  # fmt: skip
    assert (
        unit_cost_words({**row, "reasons": {}, "meta": {"state": None, "coverage": None, "unpriced_tokens": 0}})["why_unknown"]
        == "all known"
    )


@pytest.mark.parametrize("name", ["acme/[red]team", "a[/red]", ":bug:", "公司/研发部"])
def test_a_name_is_shown_as_it_is(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([{"tenant": name}], as_json=False, title=name)
    assert capsys.readouterr().out.count(name) == 2
