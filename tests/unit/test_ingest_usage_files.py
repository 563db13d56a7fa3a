"""Whole files: a wrong one says which line and field and which format fits; a damaged one costs its damage alone."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from usage_samples import MemoryLog, ingest_into, parsed, usage_item

from core.errors import BadInput
from core.usage import Deployment, TenantPath
from ingest.usage.files import FileReport, ingest_file
from ingest.usage.reading import MAX_LINE, json_items
from ingest.usage.registry import ADAPTERS
from ingest.usage.rows import BadRow, SourceOptions

TRACE = SourceOptions(deployment=Deployment("c", "n", "m"))
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n2023-11-16 18:17:04.0319600,3180,8\r\n"
MOONCAKE = '{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]}\n'
VTC = "req_id,client,prompt_len,output_len,req_time_s\n0,13,13,199,0.0\n1,2,36,137,0.20793754160099873\n"
USAGE = json.dumps(usage_item(1)) + "\n"
LITELLM = '{"call_type": "acompletion", "litellm_call_id": "x", "startTime": 1, "endTime": 2}\n'


def run(path: Path, format: str, options: SourceOptions = TRACE, log: MemoryLog | None = None) -> FileReport:
    return ingest_file(path, format, options, ingest_into(log or MemoryLog()), lambda *_: None)


def write(folder: Path, content: bytes | str, name: str = "file.txt") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("content", "format", "words"),
    [
        ("", "usage", ["file.txt", "empty"]),
        ("\n  \n", "usage", ["empty"]),
        (gzip.compress(b""), "usage", ["empty"]),
        ("", "azure-llm", ["empty"]),
        (AZURE, "usage", ["file.txt:1", "TIMESTAMP", "--format azure-llm"]),
        (AZURE, "litellm", ["--format azure-llm"]),
        (VTC, "azure-llm", ["file.txt:1", "req_id", "--format vtc"]),
        (MOONCAKE, "usage", ["timestamp", "--format mooncake"]),
        (USAGE, "mooncake", ["schema", "--format usage"]),
        (LITELLM, "usage", ["call_type", "--format litellm"]),
        ("[" + USAGE + "]", "litellm", ["--format usage"]),
        ("TIME,ContextTokens,GeneratedTokens\n1,2,3\n", "azure-llm", ["file.txt:1", "TIMESTAMP", "not a column", "TIME"]),
        ("req_id,client,prompt_len,output_len\n", "vtc", ["req_time_s"]),
        (b"\x89PNG\r\n\x1a\n\0\0\0", "usage", ["binary"]),
        ("hello world\n" * 200, "usage", ["file.txt:1", "line", "none of the first 200 rows"]),
        (AZURE, "parquet", ["--format", "azure-llm"]),
    ],
)
def test_a_wrong_file_says_so_before_anything_is_written(tmp_path: Path, content: Any, format: str, words: list[str]) -> None:
    log = MemoryLog()
    with pytest.raises(BadInput) as caught:
        run(write(tmp_path, content), format, log=log)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert log.batches == {}


def test_absent_files_and_missing_options_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        run(tmp_path / "nothing", "usage")
    with pytest.raises(BadInput, match="cannot be read"):
        run(tmp_path, "usage")
    with pytest.raises(BadInput, match="--deployment"):
        run(write(tmp_path, AZURE), "azure-llm", SourceOptions())
    with pytest.raises(BadInput, match=r"client.*the columns are: TIMESTAMP"):
        run(write(tmp_path, AZURE), "azure-llm", SourceOptions(deployment=Deployment("c", "n", "m"), tenant_column="client"))


def lines(*items: Any) -> bytes:
    return b"".join((item if isinstance(item, bytes) else json.dumps(item).encode()) + b"\n" for item in items)


@pytest.mark.parametrize(
    ("content", "accepted", "reasons"),
    [
        (lines(usage_item(1), b"{", usage_item(2)), 2, ["file.txt:2: line: is not JSON"]),
        (lines(b"{", usage_item(1), b"[", usage_item(2)), 2, ["file.txt:1: line: is not JSON", "file.txt:3: line: is not JSON"]),
        (lines(usage_item(1), b'{"request_id": NaN}', usage_item(2)), 2, ["file.txt:2: started_at: is required"]),
        (lines(usage_item(1), usage_item(2, tokens={"output": float("nan")})), 1, ["file.txt:2: tokens.output: must be a whole"]),
        (
            lines(usage_item(1), usage_item(2, finished_at="2026-11-30T12:00:00")),
            1,
            ["file.txt:2: finished_at: time has no zone"],
        ),
        (lines(usage_item(1), b"\xff\xfe\x00junk\x01", usage_item(2)), 2, ["file.txt:2: line: is not JSON"]),
        (lines(usage_item(1), b'{"a":"' + b"x" * MAX_LINE + b'"}', usage_item(2)), 2, ["file.txt:2: line: is longer than"]),
        (lines(usage_item(1), b"[" * 100_000, usage_item(2)), 2, ["file.txt:2: line: is nested too deeply"]),
        (lines(usage_item(1), b"9" * 5000, usage_item(2)), 2, ["file.txt:2: "]),
        (b"\xef\xbb\xbf" + lines(usage_item(1)).replace(b"\n", b"\r\n"), 1, []),
        (lines(usage_item(1), b"", b"   ", usage_item(2))[:-1], 2, []),
        (lines(usage_item(1)) + lines(usage_item(2))[:50], 1, ["file.txt:2: line: is not JSON"]),
        (json.dumps([usage_item(1), 5, usage_item(2)], indent=1).encode(), 2, ["file.txt:1: record: must be a JSON object"]),
        (json.dumps(usage_item(1), indent=1).encode(), 1, []),
        (gzip.compress(lines(*(usage_item(n) for n in range(9)))), 9, []),
    ],
)
def test_the_rest_of_a_damaged_file_goes_on(tmp_path: Path, content: bytes, accepted: int, reasons: list[str]) -> None:
    report = run(write(tmp_path, content), "usage")
    assert report.accepted == accepted
    assert len(report.reasons) == len(reasons) == report.quarantined
    assert all(found.startswith(start) for found, start in zip(report.reasons, reasons, strict=True)), report.reasons


def test_a_gzip_cut_short_gives_what_it_held_and_says_so(tmp_path: Path) -> None:
    whole = gzip.compress(b"".join(lines(usage_item(n, trace_id=f"{n * 7919}")) for n in range(2000)))
    report = run(write(tmp_path, whole[: len(whole) // 2]), "usage")
    assert report.accepted > 500
    assert report.quarantined == 1
    assert "gzip: the compressed file is damaged from here on" in report.reasons[0]


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ("2023-11-16 18:17:04.0319600,3180", "GeneratedTokens"),
        ("2023-11-16 18:17:04.0319600,3180,8,9", "line"),
        ("2023-11-16 18:17:04.0319600,-5,8", "ContextTokens"),
        ("2023-11-16 18:17:04.0319600,NaN,8", "ContextTokens"),
        ("2023-11-16 18:17:04.0319600,5,8.0", "GeneratedTokens"),
        ("2023-11-16 18:17:04.0319600,5,", "GeneratedTokens"),
        ("2023-11-16 18:17:04.0319600,5,٣", "GeneratedTokens"),
        ("2023-11-16 18:17:04.0319600,999999999999,8", "tokens.input_uncached"),
        ("tomorrow,5,8", "TIMESTAMP"),
        ("1970-01-01 00:00:00,5,8", "time"),
        ("2999-01-01 00:00:00,5,8", "time"),
        ("2027-01-01 00:00:00,5,8", "finished_at"),
    ],
)
def test_bad_trace_rows_name_line_and_field(tmp_path: Path, row: str, field: str) -> None:
    report = run(write(tmp_path, AZURE + row + "\r\n2023-11-16 18:17:05,1,1\r\n"), "azure-llm")
    assert (report.accepted, report.quarantined) == (3, 1)
    assert report.reasons[0].startswith(f"file.txt:4: {field}: ")


@pytest.mark.parametrize(
    ("item", "field"),
    [
        ({"timestamp": 1, "input_length": 5}, "output_length"),
        ({"timestamp": -1, "input_length": 5, "output_length": 1}, "timestamp"),
        ({"timestamp": 1.5, "input_length": 5, "output_length": 1}, "timestamp"),
        ({"timestamp": 1, "input_length": "5", "output_length": 1}, "input_length"),
        ([1], "record"),
    ],
)
def test_bad_mooncake_rows(item: Any, field: str) -> None:
    found = parsed("mooncake", MOONCAKE.encode() + json.dumps(item).replace("[1]", "1").encode(), TRACE)
    assert found[1].error.field == field  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("tenant", "column", "expected"),
    [
        (TenantPath(), "", ("", "")),
        (TenantPath(), "client", ("13", "")),
        (TenantPath("arena"), "client", ("arena", "13")),
    ],
)
def test_a_tenant_column_fills_the_first_free_part(tenant: TenantPath, column: str, expected: tuple[str, str]) -> None:
    options = SourceOptions(deployment=Deployment("c", "n", "m"), tenant=tenant, tenant_column=column)
    record = json.loads(parsed("vtc", VTC.encode(), options)[0].record)  # type: ignore[union-attr]
    assert (record["tenant"]["org"], record["tenant"]["team"]) == expected


def test_equal_rows_are_told_apart_and_stay_the_same_on_a_second_run(tmp_path: Path) -> None:
    path = write(tmp_path, "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "2023-11-16 18:17:05,1,1\n" * 3)
    log = MemoryLog()
    assert run(path, "azure-llm", log=log).accepted == 3
    first = {record["request_id"] for record in log.records()}
    assert len(first) == 3
    ingest = ingest_into(log, archive=first)
    assert ingest_file(path, "azure-llm", TRACE, ingest, lambda *_: None).duplicate == 3
    assert len(log.lines("usage")) == 3


def test_progress_reaches_the_end_of_the_file(tmp_path: Path) -> None:
    seen: list[tuple[int, int, int]] = []
    path = write(tmp_path, b"".join(lines(usage_item(n)) for n in range(25_000)))
    ingest_file(path, "usage", TRACE, ingest_into(MemoryLog()), lambda *at: seen.append(at))
    assert [rows for _, _, rows in seen] == [10_000, 20_000, 25_000]
    assert seen[-1][0] == seen[-1][1] == path.stat().st_size


def test_the_first_twenty_reasons_are_shown(tmp_path: Path) -> None:
    report = run(write(tmp_path, lines(usage_item(1), *(usage_item(n, status="x") for n in range(2, 40)))), "usage")
    assert report.quarantined == 38
    assert len(report.reasons) == 20


def _column(name: str) -> Callable[[dict[str, str]], int]:
    return lambda row: int(row[name])


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("format", "name", "tokens_in", "tokens_out"),
    [
        ("azure-llm", "azure_llm_2023/AzureLLMInferenceTrace_code.csv", "ContextTokens", "GeneratedTokens"),
        ("mooncake", "mooncake_fast25/conversation_trace_part1.jsonl", "input_length", "output_length"),
        ("vtc", "vtc_arena27/real_trace.csv", "prompt_len", "output_len"),
    ],
)
def test_real_traces_keep_their_sums(realdata: Path, format: str, name: str, tokens_in: str, tokens_out: str) -> None:
    path = realdata / "traces" / name
    with path.open(newline="") as text:
        truth: list[dict[str, Any]] = list(csv.DictReader(text)) if name.endswith("csv") else [json.loads(line) for line in text]
    log = MemoryLog()
    report = run(path, format, log=log)
    found = log.records()
    assert report.accepted == len(found) == len(truth)
    assert sum(record["tokens"]["input_uncached"] for record in found) == sum(int(row[tokens_in]) for row in truth)
    assert sum(record["tokens"]["output"] for record in found) == sum(int(row[tokens_out]) for row in truth)
    sums = [[int(value) for value in row] for row in csv.reader(line.split(",exact,0,")[1] for line in log.lines("usage"))]
    assert sum(row[0] for row in sums) == sum(int(row[tokens_in]) for row in truth)


def test_every_format_knows_its_own_head() -> None:
    heads = {"usage": USAGE, "litellm": LITELLM, "azure-llm": AZURE, "mooncake": MOONCAKE, "vtc": VTC}
    for format, head in heads.items():
        assert [name for name, adapter in ADAPTERS.items() if adapter.looks_like(head.encode())] == [format]


def test_a_cut_file_is_told_apart_from_bad_rows(tmp_path: Path) -> None:
    whole = gzip.compress(b"".join(lines(usage_item(n, trace_id=f"{n * 7919}")) for n in range(2000)))
    report = run(write(tmp_path, whole[: len(whole) // 2]), "usage")
    assert len(report.cut) == 1
    assert "damaged from here on" in report.cut[0]
    assert run(write(tmp_path, whole), "usage").cut == []


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (b'[{"a": 1}, {"b": 2}', "at column 20, where the text ends: was it cut short?"),
        (b'[{"a": 1}, {"b": 2}\n', "at column 20, where the text ends: was it cut short?"),
        (b'[\n{"a": 1},\n{"b": "x', "at line 3, column 7, where the text ends: was it cut short?"),
        (b'[{"a": 1} {"b": 2}]', "at column 11"),
        (b'[\n{"a": 1},\n{"b" 2}\n]\n', "at line 3, column 6"),
    ],
)
def test_what_is_no_json_is_named_where_it_ends(text: bytes, place: str) -> None:
    (bad,) = json_items(io.BytesIO(text))
    assert isinstance(bad, BadRow)
    assert bad.error.message.endswith(place), bad.error.message
