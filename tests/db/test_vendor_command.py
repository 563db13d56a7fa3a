"""``tokenfuse rates import`` of vendors' lists, ``rates vendor``, ``show unpriced`` and ``compare`` as a person uses them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.main import main

pytestmark = pytest.mark.db
LIST = [{"id": "acme", "models": [
    {"id": "chat", "match": {"or": [{"starts_with": "chat"}, {"contains": "chatty"}]},
     "prices": {"input_mtok": 2, "cache_read_mtok": 0.5, "output_mtok": 8}},
    {"id": "slip", "match": {"equals": "slip"}, "prices": {"input_mtok": 15000, "output_mtok": 1}},
]}]  # fmt: skip


@pytest.fixture
def run(db_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """``run("rates", …)`` -> (exit code, standard output, standard error)."""
    monkeypatch.setenv("TOKENFUSE_SETTINGS", str(tmp_path / "none.toml"))

    def call(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([*words, "--db", db_url, "--data-dir", str(tmp_path / "data")])
        out, error = capsys.readouterr()
        return int(ended.value.code or 0), out, error

    return call


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    file = tmp_path / "prices_2026-08-21.json"
    file.write_text(json.dumps(LIST))
    return file


def take(run: Any, file: Path, *more: str) -> dict[str, Any]:
    code, out, _ = run("rates", "import", str(file), "--format", "genai-prices", "--json", *more)
    found: dict[str, Any] = json.loads(out)
    assert code == (2 if found["refused"] else 0)
    return found


def test_a_list_is_taken_in_looked_up_and_named_by_a_person(run: Any, prices: Path) -> None:
    assert take(run, prices, "--dry-run")["new"] == 1
    code, out, error = run("rates", "vendor", "find", "acme/chat", "--at", "2026-09-01")
    assert (code, "Unknown: no price list names acme/chat" in out) == (1, True)
    found = take(run, prices, "--since", "2026-01-01")
    assert (found["label"], found["new"], found["refused"], found["rules_not_used"]) == ("genai-prices 2026-08-21", 1, 1, 1)
    assert "per million tokens" in found["reasons"][0]
    assert take(run, prices)["unchanged"] == 1
    assert run("rates", "vendor", "find", "acme/chat-2026-02-02", "--at", "2026-02-03")[0] == 0
    code, _, error = run("rates", "vendor", "find", "acme/my-chatty", "--at", "2026-02-03")
    assert (code, "would take it for acme/chat" in error) == (1, True)
    words = ("acme/my-chatty", "acme/chat", "--from", "2026-02-01", "--reason", "the same weights")
    assert run("rates", "vendor", "alias", "add", *words)[0] == 0
    assert run("rates", "vendor", "find", "acme/my-chatty", "--at", "2026-02-03")[0] == 0
    _, out, _ = run("rates", "vendor", "alias", "list", "--json")
    assert [(row["model"], row["is"]) for row in json.loads(out)] == [("acme/my-chatty", "acme/chat")]
    assert run("rates", "vendor", "alias", "end", "acme/my-chatty", "--at", "2026-02-02")[0] == 0
    assert run("rates", "vendor", "find", "acme/my-chatty", "--at", "2026-02-03")[0] == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("rates", "vendor", "find", "chat", "--at", "2026-01-01"), "is not VENDOR/MODEL"),
        (("rates", "vendor", "find", "a/b", "--at", "noon"), "not a time"),
        (("rates", "vendor", "alias", "add", "a/b", "acme/nope", "--from", "2026-01-01", "--reason", "x"), "names nothing"),
        (("rates", "vendor", "alias", "add", "a/b", "c/d", "--from", "2026-01-01T00:07:00Z", "--reason", "x"), "quarter hour"),
        (
            ("rates", "vendor", "alias", "add", "a/b", "c/d", "--from", "2026-01-01", "--source", "x", "--reason", "x"),
            "no such list",
        ),
        (("compare", "--against", "chat"), "is not VENDOR/MODEL"),
        (("rates", "import", "/nowhere.json", "--format", "litellm-prices"), "cannot be read"),
    ],
)
def test_bad_input_is_named(run: Any, words: tuple[str, ...], said: str) -> None:
    code, _, error = run(*words)
    assert (code, said in error) == (2, True), error


def test_nothing_there_says_so(run: Any) -> None:
    assert "No price of a vendor" in run("rates", "vendor", "list")[1]
    assert "No alias" in run("rates", "vendor", "alias", "list")[1]
    assert "has a price" in run("show", "unpriced")[1]
    assert "No bought token" in run("show", "bought")[1]
    assert "No closed, priced quarter hour" in run("compare")[1]
    assert json.loads(run("compare", "--json")[1])["rows"] == []
