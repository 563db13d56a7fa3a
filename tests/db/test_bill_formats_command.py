"""``tokenfuse ingest bill`` takes every format by its name, and says in plain words what is wrong with a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.main import main
from ingest.billing.registry import ADAPTERS

pytestmark = pytest.mark.db
FORMATS = {
    "alibaba", "anthropic", "aws-cur", "aws-focus", "azure-actual", "azure-amortized", "azure-focus", "focus", "gcp", "litellm",
    "mapped", "openai", "openrouter", "tencent", "volcengine",
}  # fmt: skip


def test_the_formats_by_name() -> None:
    assert set(ADAPTERS) == FORMATS


def test_a_vendor_report_and_a_cut_one(
    db_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKENFUSE_SETTINGS", str(tmp_path / "none.toml"))

    def run(*words: str) -> tuple[int, Any]:
        with pytest.raises(SystemExit) as ended:
            main([*words, "--db", db_url, "--data-dir", str(tmp_path / "data"), "--json"])
        out, _ = capsys.readouterr()
        return int(ended.value.code or 0), json.loads(out) if out else None

    report = tmp_path / "july.json"
    rows = [{"date": "2026-07-03", "model": "m", "usage": "1.25", "prompt_tokens": 1, "completion_tokens": 2}]
    report.write_text(json.dumps({"data": rows}), encoding="utf-8")
    code, said = run("ingest", "bill", str(report), "--format", "openrouter")
    assert (code, said["imported"][0]["totals"][0]["billed"]) == (0, "1.25")
    _, charges = run("show", "charges", "--by", "bucket")
    assert [(row["bucket"], row["billed_cost"]) for row in charges] == [("vendor_api", "1.25")]
    report.write_text(json.dumps({"data": rows})[:-5], encoding="utf-8")
    code, said = run("ingest", "bill", str(report), "--format", "openrouter")
    assert (code, said["imported"]) == (2, [])
    assert "july.json: line 1 is no JSON" in json.dumps(said["refused"])
