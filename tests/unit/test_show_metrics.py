"""``show metrics --page``: a saved page in canonical names, and what is wrong with it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from cli.main import main

PAGE = 'vllm:prompt_tokens_total{engine="0",model_name="m"} 7\nvllm:brand_new{model_name="m"} 1\n'


@pytest.fixture(autouse=True)
def _no_settings_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENFUSE_SETTINGS", str(tmp_path / "tokenfuse.toml"))


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    with pytest.raises(SystemExit) as end:
        main(["show", "metrics", *arguments])
    assert end.value.code == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("packed", [False, True])
def test_a_saved_page_in_canonical_names(tmp_path: Path, capsys: pytest.CaptureFixture[str], packed: bool) -> None:
    file = tmp_path / ("page.prom.gz" if packed else "page.prom")
    file.write_bytes(gzip.compress(PAGE.encode()) if packed else PAGE.encode())
    assert shown(capsys, "--page", str(file), "--json") == {
        "families": ["vllm"],
        "values": [
            {"kind": "engine", "subject": "0/m", "name": "prompt_tokens", "value": 7, "unit": "tokens", "type": "counter"}
        ],
        "faults": [],
        "unmapped": ["vllm:brand_new"],
    }


def test_a_page_that_is_none_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "page.prom"
    file.write_text("<html></html>\n")
    with pytest.raises(SystemExit) as end:
        main(["show", "metrics", "--page", str(file)])
    assert end.value.code == 2
    assert "page.prom" in capsys.readouterr().err
