"""``tokenfuse explain`` on the generated June: what it prints, and how it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bill_takes import Takes
from explain_world import generate, generated_bill
from sqlalchemy import Engine

from cli.main import main

pytestmark = pytest.mark.db
PERIODS = ("--from", "2026-05-02..2026-06-01", "--to", "2026-06")


@pytest.fixture(autouse=True)
def _no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENFUSE_SETTINGS", str(tmp_path / "none.toml"))


def run(db_url: str, folder: Path, *words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["explain", *words, "--db", db_url, "--data-dir", str(folder / "data")])
    return int(ended.value.code or 0)


def test_json_holds_exact_decimals_as_text(db: Engine, db_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generate(db)
    assert run(db_url, tmp_path, *PERIODS, "--by", "tenant", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    (total,) = found["totals"]
    assert (total["before"], total["after"], total["change"], total["change_percent"]) == ("200", "280", "80", "40")
    assert {row["effect"] for row in total["effects"]} >= {"rate", "idle", "volume", "cache"}
    assert total["difference"] == "0"
    assert (found["rows"][0]["tenant"], found["rows"][0]["change"]) == ("acme/docs", "40")


def test_people_read_causes_and_that_no_bill_is_there(
    db: Engine, db_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    generate(db)
    assert run(db_url, tmp_path, *PERIODS) == 0
    out, error = capsys.readouterr()
    assert "200 USD in 2026-05-02..2026-06-01, 280 in 2026-06: 80, 40 %" in error
    assert "no bill imported" in error
    assert "2026-06: the last closed quarter hour ends 2026-06-01T02:00Z; later ones are in no sum." in error
    assert "share of input tokens read from the cache" in out
    assert "lab/prod/code" in out


def test_people_read_the_bill_first(db: Engine, db_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generate(db)
    Takes(db, tmp_path, "aws-cur").rows([row for row in generated_bill() if row["lineItem/UsageStartDate"][5:7] == "06"])
    assert run(db_url, tmp_path, *PERIODS) == 0
    out, error = capsys.readouterr()
    assert "Bills, by day of use (UTC): 0 USD billed in 2026-05-02..2026-06-01, 10096.8 in 2026-06: 10096.8" in error
    assert out.index("Bills by bucket, USD") < out.index("Bill-only lines") < out.index("Causes (they add up to the change)")
    assert "machines of the second period alone" in out


def test_a_wrong_period_is_bad_input(db_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(db_url, tmp_path, "--from", "June", "--to", "2026-06") == 2
    assert "--from: not a period (value 'June')" in capsys.readouterr().err


def test_nothing_closed_says_so(db_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(db_url, tmp_path, *PERIODS) == 0
    assert "No closed, priced quarter hour in either period." in capsys.readouterr().err
