"""``tokenfuse tenants``: what each command prints, and what it says of a wrong file."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text

from cli.main import main
from core.ports import LogBatch
from core.usage_codec import decode_usage
from eventlog.archive import archive_segments
from eventlog.manifest import epochs, segments
from eventlog.spool import SpoolLog, SpoolSettings
from ingest.usage.rows import prepare

pytestmark = pytest.mark.db
RULES = """
default: {org: unassigned}
rules:
  - name: rag keys
    when:
      - {field: key_alias, op: regex, value: "rag-([a-z]+)"}
      - {field: tag.env, value: prod}
    set: {team: "$1", project: rag}
    then: continue
  - {name: vendor, when: [{field: requested_model, op: prefix, value: gpt}], set: {service_tier: P2}}
"""
Answer = tuple[int, Any, str]
Command = Callable[..., Answer]


@pytest.fixture
def command(db_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """``command("tenants", "list")`` -> exit code, parsed JSON (None without), standard error."""
    monkeypatch.setenv("TOKENFUSE_SETTINGS", str(tmp_path / "none.toml"))

    def run(*words: str) -> Answer:
        with pytest.raises(SystemExit) as ended:
            main([*words, "--db", db_url, "--data-dir", str(tmp_path), "--json"])
        out, error = capsys.readouterr()
        return int(ended.value.code or 0), json.loads(out) if out else None, error

    return run


@pytest.fixture
def rules_file(tmp_path: Path) -> Path:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    return file


def item(number: int, **changes: Any) -> dict[str, Any]:
    at = (datetime.now(UTC) - timedelta(hours=2, seconds=number)).isoformat()
    return {
        "schema": "usage/1", "request_id": f"r{number}", "started_at": at, "finished_at": at, "deployment": {"model_id": "m"},
        "tenant": {"org": "acme", "key_id": "k"}, "tokens": {"input_uncached": 10, "output": 1}, **changes,
    }  # fmt: skip


def archive(data_dir: Path, *items: dict[str, Any]) -> None:
    log = SpoolLog(data_dir / "log", SpoolSettings(reserve_bytes=0, reserve_percent=0), lambda: datetime.now(UTC))
    rows = [prepare(decode_usage(one)) for one in items]
    log.append("usage", LogBatch([row.line for row in rows], [row.record for row in rows]))
    log.close()
    for epoch in epochs(data_dir / "log", "usage"):
        archive_segments(data_dir, "usage", epoch, [one.segment for one in segments(data_dir / "log", "usage", epoch)])


FACTS = {"raw": {"identity": {"key_alias": "rag-search", "tags": ["env:prod"]}}}


def test_a_set_is_published_shown_and_not_published_twice(command: Command, rules_file: Path) -> None:
    assert command("tenants", "rules", "show")[:2] == (0, [])
    code, made, _ = command("tenants", "rules", "set", str(rules_file), "--reason", "rag has its team", "--by", "ann")
    assert (code, made[0]["version"], made[0]["rules"], made[0]["changed"]) == (0, 1, 2, True)
    assert command("tenants", "rules", "set", str(rules_file), "--reason", "again")[1][0]["changed"] is False
    shown = command("tenants", "rules", "show")[1]
    assert (shown["author"], shown["reason"], shown["in_force"]) == ("ann", "rag has its team", False)
    assert shown["rules"]["rules"][0]["then"] == "continue"
    assert [one["version"] for one in command("tenants", "rules", "show", "--history")[1]] == [1]
    code, _, error = command("tenants", "rules", "set", str(rules_file), "--reason", "x", "--expect", "0")
    assert (code, "version 1 was published meanwhile" in error) == (1, True)
    code, _, error = command("tenants", "rules", "show", "--version", "7")
    assert (code, "no such version" in error) == (2, True)


@pytest.mark.parametrize("more", [[], ["--restate"]])
def test_the_past_is_refused(command: Command, rules_file: Path, tmp_path: Path, more: list[str]) -> None:
    archive(tmp_path, item(1))
    code, _, error = command("tenants", "rules", "set", str(rules_file), "--reason", "x", "--from", "2026-01-01", *more)
    assert code == 1
    assert "preview" in error


def test_a_new_installation_may_have_its_rules_before_it_reads_its_history(
    command: Command, rules_file: Path, tmp_path: Path
) -> None:
    words = ("tenants", "rules", "set", str(rules_file), "--reason", "x", "--from")
    assert command(*words, "2026-01-01")[1][0]["valid_from"] == "2026-01-01T00:00:00Z"
    assert command("tenants", "rules", "show")[1]["in_force"] is True
    lines = tmp_path / "usage.ndjson"
    lines.write_text(json.dumps(item(1, **FACTS)))
    assert command("ingest", "usage", str(lines), "--format", "usage")[1]["accepted"] == 1
    log = SpoolLog(tmp_path / "log", SpoolSettings(reserve_bytes=0, reserve_percent=0), lambda: datetime.now(UTC))
    (record,) = [json.loads(line.record or b"{}") for line in log.read("usage")]
    log.close()
    assert (record["tenant"]["team"], record["raw"]["identity"]["rules"]) == ("search", "1")
    code, _, error = command(*words, "2026-01-02")
    assert (code, "not rewritten silently" in error) == (1, True)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("rules: [", "rules.yaml:1: is neither YAML nor JSON"),
        ("rules:\n  - name: a\n    name: b", "rules.yaml:3: is neither YAML nor JSON: the key 'name' stands twice"),
        ("[]", "rules.yaml: rules: must be an object"),
        (
            "rules: [{name: a, when: [{field: org, value: no}], set: {org: x}}]",
            "rules.yaml: rules[0].when[0].value: must be a text",
        ),
        (
            'rules: [{name: a, when: [{field: org, op: regex, value: "(a+)+"}], set: {org: x}}]',
            "rules[0].when[0].value: a group may be",
        ),
        ("\x00", "rules.yaml: is neither YAML nor JSON"),
        ("", "rules.yaml: rules: must be an object"),
    ],
)
def test_a_wrong_file_is_named_by_place(command: Command, tmp_path: Path, body: str, says: str) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(body)
    for words in (("rules", "set", str(file), "--reason", "x"), ("preview", "--rules", str(file))):
        code, out, error = command("tenants", *words)
        assert (code, out) == (2, None)
        assert says in error


def test_a_record_is_explained(command: Command, rules_file: Path, tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    record.write_text(json.dumps(item(1, **FACTS, requested_model="gpt-4")))
    (found,) = command("tenants", "test", "--rules", str(rules_file), "--record", str(record))[1]
    assert (found["org"], found["team"], found["project"], found["service_tier"]) == ("acme", "search", "rag", "P2")
    assert [step["outcome"] for step in found["steps"]] == ["applied", "applied"]
    (found,) = command("tenants", "test", "--record", str(record))[1]
    assert (found["team"], found["steps"]) == ("", [])
    record.write_text("7")
    code, _, error = command("tenants", "test", "--record", str(record))
    assert (code, "record.json: [0]: is not a usage record" in error) == (2, True)


def test_a_preview_counts_the_archive(command: Command, rules_file: Path, tmp_path: Path) -> None:
    archive(tmp_path, item(1, **FACTS), item(2), item(3, requested_model="gpt-4"))
    found = command("tenants", "preview", "--rules", str(rules_file))[1]
    assert (found["total"]["requests"], found["moved"]["requests"], found["kept"]["requests"]) == (3, 2, 1)
    assert sorted(move["to"] for move in found["moves"]) == [["acme", "", "", "", "P2"], ["acme", "search", "rag", "", "P1"]]
    assert found["by_rule"] == {"rag keys": 1, "vendor": 1}
    assert "closed and priced" in found["cost_reason"]


def test_names_come_from_litellms_tables_and_stay(
    command: Command, db: Engine, db_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, error = command("tenants", "import", "litellm", "--from-db")
    assert (code, "litellm_db_url" in error) == (2, True)
    code, _, error = command("tenants", "import", "litellm")
    assert (code, "litellm_url" in error) == (2, True)
    monkeypatch.setenv("TOKENFUSE_LITELLM_DB_URL", db_url)
    with db.begin() as connection:
        connection.execute(text('CREATE TABLE "LiteLLM_VerificationToken" (token text, key_alias text)'))
        connection.execute(text("""INSERT INTO "LiteLLM_VerificationToken" VALUES ('h1', 'old')"""))
    first = command("tenants", "import", "litellm", "--from-db")[1][0]
    assert (first["read"], first["new"], first["changed"], first["unchanged"]) == (1, 1, 0, 0)
    with db.begin() as connection:
        connection.execute(text("""UPDATE "LiteLLM_VerificationToken" SET key_alias = 'new'"""))
    second = command("tenants", "import", "litellm", "--from-db")[1][0]
    assert (second["new"], second["changed"], second["unchanged"]) == (0, 1, 0)


def test_tenants_are_listed(command: Command) -> None:
    assert command("tenants", "list")[:2] == (0, [])
    code, _, error = command("tenants", "list", "--by", "colour")
    assert (code, "is not a part of a tenant" in error) == (2, True)
