"""The command line's doors: bad input gets a message that names it and exit code 2; JSON mode prints nothing but JSON."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from tokenfuse_command import Tokenfuse

pytestmark = pytest.mark.db

GOOD = {
    "request_id": "r-1",
    "started_at": "2026-11-30T10:00:00Z",
    "finished_at": "2026-11-30T10:00:01Z",
    "deployment": {"cluster": "c", "namespace": "n", "model_id": "m"},
    "tokens": {"input_uncached": 10, "output": 5},
}


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("ingest", "usage", "/no/such/file", "--format", "usage"), ("/no/such/file", "cannot be read")),
        (("ingest", "usage", "EMPTY", "--format", "usage"), ("empty", "at least one record")),
        (("ingest", "usage", "BINARY", "--format", "usage"), ("binary",)),
        (("ingest", "usage", "GOOD", "--format", "azure-llm"), ("--format usage",)),
        (("ingest", "usage", "GOOD", "--format", "nonsense"), ("nonsense",)),
        (("ingest", "usage", "GOOD", "--format", "usage", "--deployment", "a/b"), ("--deployment", "CLUSTER/NAMESPACE/MODEL")),
        (("ingest", "engine", "/no/such/folder"), ("/no/such/folder", "not a folder")),
        (("show", "usage", "--by", "colour"), ("colour", "team")),
        (("show", "usage", "--from", "2026-11-30T10:00"), ("--from", "zone")),
        (("show", "usage", "--from", "yesterday"), ("--from", "yesterday")),
        (("show", "usage", "--from", "2026-11-30", "--to", "2026-11-29"), ("end after",)),
        (("budget", "set", "--scope", "tenant:a", "--amount", "-5"), ("--amount", "-5")),
        (("budget", "set", "--scope", "tenant:a", "--amount", "NaN"), ("--amount", "NaN")),
        (("budget", "set", "--scope", "galaxy:a", "--amount", "5"), ("galaxy",)),
        (("exempt", "add", "--scope", "tenant:a", "--owner", "o", "--until", "2020-01-01", "--reason", "r"), ("--until", "past")),
        (("rates", "import", "EMPTY"), ("empty.json",)),
        (("token", "create", "--name", "t", "--scope", "everything"), ("everything",)),
    ],
)
def test_bad_input_is_named(tokenfuse: Tokenfuse, arguments: tuple[str, ...], names: tuple[str, ...]) -> None:
    files = _files(tokenfuse.folder)
    done = tokenfuse.run(*(str(files.get(word, word)) for word in arguments), expect=2)
    assert done.stdout == ""
    for name in names:
        assert name.lower() in done.stderr.lower(), done.stderr


def _files(folder: Path) -> dict[str, Path]:
    files = {"EMPTY": folder / "empty.json", "BINARY": folder / "junk.bin", "GOOD": folder / "good.jsonl"}
    files["EMPTY"].write_bytes(b"")
    files["BINARY"].write_bytes(b"\0\1\2" * 100)
    files["GOOD"].write_text(json.dumps(GOOD))
    return files


def test_good_and_bad_lines_mixed(tokenfuse: Tokenfuse) -> None:
    lines = [
        GOOD,
        GOOD,
        {**GOOD, "request_id": "r-2", "finished_at": "2026-11-30T10:00:01"},
        {**GOOD, "request_id": "r-3", "finished_at": "2099-01-01T00:00:00Z", "started_at": "2099-01-01T00:00:00Z"},
        {**GOOD, "request_id": "r-4", "tokens": {"input_uncached": -1}},
        {**GOOD, "request_id": "r-5", "deployment": {"cluster": "c", "namespace": "n", "model_id": ""}},
    ]
    file = tokenfuse.folder / "mixed.jsonl"
    file.write_text("\n".join(json.dumps(line) for line in lines) + '\n{"request_id": "cut sho')
    report = tokenfuse.json("ingest", "usage", str(file), "--format", "usage")
    assert (report["accepted"], report["duplicate"], report["quarantined"]) == (1, 1, 5)
    text = "\n".join(report["reasons"])
    for place in ("mixed.jsonl:3", "mixed.jsonl:4", "mixed.jsonl:5", "mixed.jsonl:6", "mixed.jsonl:7"):
        assert place in text


def test_of_a_gzip_file_cut_short_the_whole_lines_are_taken_and_the_damage_is_named(tokenfuse: Tokenfuse) -> None:
    file = tokenfuse.folder / "cut.jsonl.gz"
    whole = gzip.compress("\n".join(json.dumps({**GOOD, "request_id": f"g-{i}"}) for i in range(2000)).encode())
    file.write_bytes(whole[: len(whole) // 2])
    report = tokenfuse.json("ingest", "usage", str(file), "--format", "usage", expect=1)
    assert 0 < report["accepted"] < 2000
    (reason,) = report["reasons"]
    assert reason.startswith(f"cut.jsonl.gz:{report['accepted'] + 1}")
    assert "damaged" in reason


def test_a_file_of_another_kind_takes_nothing_and_says_so(tokenfuse: Tokenfuse) -> None:
    file = tokenfuse.folder / "passwd"
    file.write_text("root:x:0:0\n" * 5)
    done = tokenfuse.run("ingest", "usage", str(file), "--format", "usage", expect=2)
    assert "passwd:1" in done.stderr


def test_doctor_names_a_target_without_gpus(tokenfuse: Tokenfuse) -> None:
    settings = tokenfuse.folder / "tokenfuse.toml"
    settings.write_text('[[targets]]\nurl = "http://127.0.0.1:1/metrics"\n')
    findings = tokenfuse.json("doctor", expect=1)
    settings.unlink()
    (wrong,) = (f for f in findings if f["check"] == "targets")
    assert wrong["verdict"] == "error"
    assert "gpu" in wrong["found"]


def test_init_writes_settings_once(tokenfuse: Tokenfuse) -> None:
    flags = (
        "--vllm-url", "http://h:8000/metrics", "--model", "m", "--gpu", "A10G", "--gpu-count", "2", "--node", "n1",
        "--litellm-url", "", "--litellm-key", "", "--organisation", "acme", "--currency", "EUR", "--zone", "Asia/Shanghai",
    )  # fmt: skip
    assert tokenfuse.json("init", *flags)["targets"][0]["count"] == 2
    again = tokenfuse.run("init", *flags, expect=1)
    assert "--force" in again.stderr
    (tokenfuse.folder / "tokenfuse.toml").unlink()


def test_tokens_live_and_die(tokenfuse: Tokenfuse) -> None:
    (made,) = tokenfuse.json("token", "create", "--name", "reader", "--scope", "read")
    assert made["token"].startswith(f"tf_{made['id']}_")
    assert "token" not in tokenfuse.json("token", "list")[0]
    tokenfuse.run("token", "revoke", made["id"])
    tokenfuse.run("token", "revoke", made["id"], expect=1)
    assert tokenfuse.json("audit", "verify")["intact"] is True
