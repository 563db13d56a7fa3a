"""``tokenfuse rates import --format fx|ecb`` and ``rates fx list``: what is refused is named, what is good is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli_command import Command

pytestmark = pytest.mark.db
HEADER = "day,base,quote,rate,source\n"


@pytest.fixture
def take(command: Command, tmp_path: Path) -> Command:
    """``take("2026-07-01,EUR,USD,1.1,bank", …)``: import these lines as fx.csv."""

    def run(*lines: str, more: tuple[str, ...] = (), as_json: bool = True) -> tuple[int, Any, str]:
        path = tmp_path / "fx.csv"
        path.write_text(HEADER + "".join(f"{line}\n" for line in lines))
        return command("rates", "import", str(path), "--format", "fx", *more, as_json=as_json)

    return run


def known(command: Command) -> list[tuple[str, str]]:
    return [(row["day"], row["rate"]) for row in command("rates", "fx", "list", "--from", "2000-01-01")[1]]


def test_a_jump_is_refused_until_a_person_confirms_it(command: Command, take: Command) -> None:
    take("2026-07-01,EUR,USD,1.1,bank")
    code, said, _ = take("2026-07-02,EUR,USD,11,bank", "2026-07-03,EUR,USD,1.12,bank")
    assert (code, said["new"], said["refused"]) == (2, 1, 1)
    assert "fx.csv:2: rate: EUR/USD is +900 % against 1.1 on 2026-07-01" in said["reasons"][0]
    assert known(command) == [("2026-07-03", "1.12"), ("2026-07-01", "1.1")]
    code, said, _ = take("2026-07-02,EUR,USD,11,bank", more=("--confirm-jump",))
    assert (code, said["new"]) == (0, 1)
    code, said, _ = take("2026-07-02,EUR,USD,11,bank")
    assert (code, said["unchanged"]) == (0, 1)
    audited = [record["detail"].get("confirm_jump") for record in command("audit", "list")[1]]
    assert audited.count(True) == 1


def test_two_rates_of_one_day_and_a_contradicting_inverse(command: Command, take: Command) -> None:
    _, said, _ = take("2026-07-01,EUR,USD,1.1,a", "2026-07-01,EUR,USD,1.2,b", "2026-07-02,EUR,USD,1.1,a")
    assert [reason.split(" for ")[0] for reason in said["reasons"]] == [
        "fx.csv:2: rate: fx.csv:3 says 1.2", "fx.csv:3: rate: fx.csv:2 says 1.1",
    ]  # fmt: skip
    _, said, _ = take("2026-07-02,USD,EUR,0.8,a", more=("--confirm-jump",))
    assert "1 USD = 0.8 EUR contradicts 1 EUR = 1.1 USD of that day, known already (a)" in said["reasons"][0]
    assert known(command) == [("2026-07-02", "1.1")]


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
@pytest.mark.parametrize("as_json", [True, False])
def test_a_refused_line_ends_with_2_and_the_good_ones_are_kept(
    command: Command, take: Command, more: tuple[str, ...], as_json: bool
) -> None:
    code, out, error = take("2026-07-01,EUR,USD,1.1,bank", "2026-07-02,EUR,USD,nine,bank", more=more, as_json=as_json)
    assert code == 2
    assert "fx.csv:3: rate: is no number (value 'nine')" in (out["reasons"][0] if as_json else error)
    assert known(command) == ([] if more else [("2026-07-01", "1.1")])
    assert take("2026-07-01,EUR,USD,1.1,bank", as_json=as_json)[0] == 0


def test_an_empty_list_says_what_older_rates_there_are(command: Command, take: Command) -> None:
    def listed(*words: str) -> str:
        return command("rates", "fx", "list", *words, as_json=False)[1] + command("rates", "fx", "list", *words, as_json=False)[2]

    assert "No exchange rate yet: tokenfuse rates import FILE --format fx|ecb" in listed()
    take("2026-01-05,EUR,USD,1.1,bank", "2026-03-02,EUR,USD,1.2,bank", "2026-03-02,EUR,JPY,170,bank")
    take("2026-03-02,EUR,USD,1.21,bank")
    assert (
        "No exchange rate since 2026-06-01; older ones: 3, from 2026-01-05 to 2026-03-02. Show them: --from 2026-01-05"
        in listed("--from", "2026-06-01")
    )
    words = ("--from", "2026-06-01", "--pair", "EUR/JPY")
    assert "No exchange rate EUR/JPY since 2026-06-01; older ones: 1, of 2026-03-02. Show them: --from 2026-03-02" in listed(
        *words
    )
    assert "No exchange rate EUR/CNY yet" in listed("--from", "2026-06-01", "--pair", "EUR/CNY")
    assert command("rates", "fx", "list", "--from", "2026-06-01")[1] == []
