"""What a vendor answered lies in the vendor's deployment, whatever place its sender names, in every format."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from usage_samples import NOW, MemoryLog, ingest_into, parsed, usage_item

from core.bought import CLUSTER
from core.errors import BadRecord
from core.identity import Condition, Rule, RuleSet, RuleVersion
from core.identity_state import IdentityState
from core.usage import LINE_COLUMNS, Deployment
from core.usage_codec import decode_usage
from core.vendor_place import OWN_PROVIDERS, place_of_provider
from ingest.otlp.conventions import conventions
from ingest.usage.identity_map import IdentityMapper
from ingest.usage.rows import ParsedRow, SourceOptions
from ingest.usage.service import UsageIngest

POOL = Deployment("lab", "default", "gpt-5")


@pytest.mark.parametrize(
    ("provider", "model", "place"),
    [
        ("openai", "gpt-5", "vendor/openai/gpt-5"),
        ("OpenAI", "gpt-5", "vendor/openai/gpt-5"),
        ("anthropic", "claude-sonnet-4-5", "vendor/anthropic/claude-sonnet-4-5"),
        ("deepseek", "deepseek/deepseek-chat", "vendor/deepseek/deepseek-chat"),
        ("openrouter", "deepseek/deepseek-chat", "vendor/openrouter/deepseek/deepseek-chat"),
        ("deepseek", "deepseek/", "vendor/deepseek/deepseek/"),
        ("self_hosted", "gpt-5", "lab/default/gpt-5"),
        ("vLLM", "gpt-5", "lab/default/gpt-5"),
        ("hosted_vllm", "gpt-5", "lab/default/gpt-5"),
        ("", "gpt-5", "lab/default/gpt-5"),
    ],
)
def test_a_provider_that_is_no_engine_of_ones_own_is_a_vendor(provider: str, model: str, place: str) -> None:
    assert str(place_of_provider(provider, Deployment("lab", "default", model))) == place


def test_a_bought_place_stands_as_it_was_said() -> None:
    said = Deployment(CLUSTER, "azure", "gpt-5")
    assert place_of_provider("openai", said) is said


@pytest.mark.parametrize("provider", ["aws/bedrock", 'open"ai', "open\\ai"])
def test_a_provider_that_cannot_be_a_name_is_refused_with_its_field(provider: str) -> None:
    with pytest.raises(BadRecord, match="slash, quote") as caught:
        place_of_provider(provider, POOL)
    assert (caught.value.field, caught.value.value) == ("provider", provider)


MAPPING = """
fields: {gateway_id: id, started_at: at, finished_at: at, model: model, provider: vendor, input: in, output: out, backend: host}
constants: {cluster: lab, namespace: default}
"""


def formats(tmp_path: Path, provider: str, options: SourceOptions | None = None) -> dict[str, list[ParsedRow]]:
    """One call to ``gpt-5`` that names ``provider`` and the place ``POOL``, in each format that has a field for it."""
    at, given = NOW.isoformat(), options or SourceOptions()
    mapping = tmp_path / "mapping.yaml"
    mapping.write_text(MAPPING)
    place = {"cluster": "lab", "namespace": "default", "model_id": "gpt-5"}
    usage = usage_item(1, deployment=place, provider=provider)
    log = {"started_at": at, "finished_at": at, "gateway_id": "g1", "provider": provider, "request": {"model": "gpt-5"},
           "response": {"id": "c1", "model": "gpt-5", "usage": {"prompt_tokens": 5, "completion_tokens": 2}}}  # fmt: skip
    mapped = {"id": "g1", "at": at, "model": "gpt-5", "vendor": provider, "in": 5, "out": 2, "host": "10.0.0.1:8000"}
    said = SourceOptions(POOL, given.tenant, pools=given.pools)
    return {
        "usage": parsed("usage", json.dumps(usage).encode()),
        "openai-log": parsed("openai-log", json.dumps(log).encode(), said),
        "mapped": parsed("mapped", json.dumps(mapped).encode(), SourceOptions(pools=given.pools, mapping=mapping)),
    }


def accepted(rows: list[ParsedRow], ingest: UsageIngest | None = None) -> tuple[dict[str, Any], dict[str, str]]:
    """The record and the line of the one row, as the log holds them."""
    log = MemoryLog()
    ingest = ingest or ingest_into(log)
    assert [v.verdict for v in ingest.accept(rows)] == ["accepted"]
    (line,) = csv.reader(log.lines("usage"))
    return log.records()[0], dict(zip(LINE_COLUMNS, line, strict=True))


@pytest.mark.parametrize("name", ["usage", "openai-log", "mapped"])
def test_a_vendors_answer_is_bought_in_every_format(tmp_path: Path, name: str) -> None:
    record, line = accepted(formats(tmp_path, "OpenAI")[name])
    found = decode_usage(record)
    assert str(found.deployment) == "vendor/openai/gpt-5"
    assert (line["cluster"], line["namespace"], line["model_id"]) == ("vendor", "openai", "gpt-5")
    assert found.raw["identity"]["deployment"] == {"cluster": "lab", "namespace": "default", "model_id": "gpt-5"}
    assert found.provider == "OpenAI", "what the sender said stays"
    before = {name for name in record if name not in ("deployment", "raw")}
    (row,) = formats(tmp_path, "OpenAI")[name]
    said = json.loads(row.record)  # type: ignore[union-attr]
    assert {name: record[name] for name in before} == {name: said[name] for name in said if name not in ("deployment", "raw")}


@pytest.mark.parametrize("provider", ["self_hosted", "vllm"])
@pytest.mark.parametrize("name", ["usage", "openai-log", "mapped"])
def test_an_engine_of_ones_own_keeps_its_bytes(tmp_path: Path, name: str, provider: str) -> None:
    rows = formats(tmp_path, provider)[name]
    record, line = accepted(rows)
    assert record == json.loads(rows[0].record)  # type: ignore[union-attr]
    assert (line["cluster"], line["namespace"], line["model_id"]) == ("lab", "default", "gpt-5")


@pytest.mark.parametrize("name", ["openai-log", "mapped"])
def test_a_declared_pool_is_ones_own_whatever_the_log_calls_its_provider(tmp_path: Path, name: str) -> None:
    pools = {"gpt-5": Deployment("lab", "chat", "gpt-5")}
    record, _ = accepted(formats(tmp_path, "openai", SourceOptions(pools=pools))[name])
    assert record["deployment"] == {"cluster": "lab", "namespace": "chat", "model_id": "gpt-5"}
    assert "provider" not in record


def test_lines_read_by_shape_are_put_in_their_place_too() -> None:
    items = [usage_item(n, provider="mistral", deployment={"cluster": "", "namespace": "", "model_id": "m"}) for n in range(40)]
    log = MemoryLog()
    ingest_into(log).accept(parsed("usage", b"\n".join(json.dumps(one).encode() for one in items)))
    assert {str(decode_usage(one).deployment) for one in log.records()} == {"vendor/mistral/m"}
    assert {tuple(line[3:6]) for line in csv.reader(log.lines("usage"))} == {("vendor", "mistral", "m")}


def test_a_name_with_a_comma_stays_one_column() -> None:
    _, line = accepted(parsed("usage", json.dumps([usage_item(1, provider="volc, engine", tenant={"org": "a, b"})]).encode()))
    assert (line["namespace"], line["org"], line["model_id"]) == ("volc, engine", "a, b", "m")


def test_a_provider_that_cannot_be_a_name_is_quarantined() -> None:
    log = MemoryLog()
    (verdict,) = ingest_into(log).accept(parsed("usage", json.dumps([usage_item(1, provider="aws/bedrock")]).encode()))
    assert (verdict.verdict, verdict.field) == ("quarantined", "provider")
    assert "'aws/bedrock'" in verdict.reason
    assert "name the vendor by one word" in verdict.reason
    assert log.quarantined()[0]["body"] == {"request_id": "chatcmpl-1:generation", "provider": "aws/bedrock"}


def test_identity_rules_see_the_bought_place_and_what_was_said_stays() -> None:
    rules = RuleSet((Rule("bought", (Condition("cluster", "exact", "vendor"),), (("team", "procurement"),)),))
    state = IdentityState("1", (RuleVersion(1, NOW.replace(year=2025), "ann", "why", NOW, rules),))
    log = MemoryLog()
    ingest = UsageIngest(
        log, now=lambda: NOW, ensure_partitions=lambda _: None, archive_has=lambda _: set(),
        identity=IdentityMapper(lambda _: state, lambda: 0.0),
    )  # fmt: skip
    ingest.accept(parsed("usage", json.dumps([usage_item(1, provider="openai")]).encode()))
    (record,) = log.records()
    assert (record["tenant"]["team"], record["deployment"]["cluster"]) == ("procurement", "vendor")
    assert record["raw"]["identity"]["said"]["team"] == "search"
    assert record["raw"]["identity"]["deployment"] == {"cluster": "c", "namespace": "n", "model_id": "m"}


def test_otlp_knows_the_same_words_for_ones_own() -> None:
    assert conventions().self_hosted >= OWN_PROVIDERS
