"""Start commands of vLLM as people write them, the parameters read from each, and what stays unknown."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import BadInput
from ingest.fleet.args_file import EVERY, arguments_of, read_args_file
from ingest.fleet.arguments import DEFAULTS, StartArguments, start_arguments, whole_number

SERVE = "vllm serve org/chat "


def values(found: StartArguments) -> dict[str, str]:
    return {name: seen.value for name, seen in found.seen.items()}


def given_values(command: str | list[str], **environment: str) -> dict[str, str]:
    """What the command itself says, without defaults."""
    words = shlex.split(command) if isinstance(command, str) else command
    found = start_arguments(words, "here", environment)
    return {name: seen.value for name, seen in found.seen.items() if seen.where == "here"}


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (SERVE + "--max-num-seqs 64 --max-num-batched-tokens=8192", {"max_num_seqs": "64", "max_num_batched_tokens": "8192"}),
        (SERVE + "--max_num_seqs 64 --tensor_parallel_size=2", {"max_num_seqs": "64", "tensor_parallel_size": "2"}),
        (SERVE + "-tp 4 -pp=2 -dp 2", {"tensor_parallel_size": "4", "pipeline_parallel_size": "2", "data_parallel_size": "2"}),
        (SERVE + "--max-model-len 32k", {"max_model_len": "32000"}),
        (SERVE + "--max-model-len 32K", {"max_model_len": "32768"}),
        (SERVE + "--kv-cache-memory-bytes 2G", {"kv_cache_memory_bytes": "2147483648"}),
        (SERVE + "--max-model-len 25.6k", {"max_model_len": "25600"}),
        (SERVE + "--max-model-len auto", {}),
        (SERVE + "--no-enable-prefix-caching", {"prefix_caching": "false"}),
        (SERVE + "--no-enable-chunked-prefill", {"chunked_prefill": "false"}),
        (SERVE + "--enforce-eager --disable-log-stats", {"enforce_eager": "true", "log_stats": "false"}),
        (SERVE + "--gpu-memory-utilization .85 --kv-cache-dtype fp8", {"gpu_memory_utilization": ".85", "kv_cache_dtype": "fp8"}),
        (SERVE + "--enable-prompt-tokens-details", {"prompt_tokens_details": "true"}),
        (SERVE + "--enable-force-include-usage", {"force_include_usage": "true"}),
        ("python3 -m vllm.entrypoints.openai.api_server --model x --block-size 32", {"block_size": "32"}),
        ("/opt/venv/bin/vllm serve x --max-num-seqs 8", {"max_num_seqs": "8"}),
        ("--model x --max-num-seqs 8", {"max_num_seqs": "8"}),
        (SERVE + "--max-num-seqs 8 --max-num-seqs 16", {"max_num_seqs": "16"}),
    ],
)  # fmt: skip
def test_flags_in_every_spelling(command: str, expected: dict[str, str]) -> None:
    assert given_values(command) == expected


@pytest.mark.parametrize(
    "words",
    [
        [
            "/bin/sh",
            "-c",
            "set -e; pip list\nexec vllm serve x \\\n  --max-num-seqs 8 \\\n  --block-size 32 && sleep 1 --block-size 99",
        ],
        ["bash", "-lc", "vllm serve x --max-num-seqs $SEQS --block-size ${BLOCK} | tee log"],
        ["vllm", "serve", "x", "--max-num-seqs", "$(SEQS)", "--block-size=$(BLOCK)"],
    ],
)
def test_shells_and_variables_of_pods(words: list[str]) -> None:
    assert given_values(words, SEQS="8", BLOCK="32") == {"max_num_seqs": "8", "block_size": "32"}


def test_what_a_whole_command_does_not_say_is_the_default_of_every_version_and_nothing_more() -> None:
    found = start_arguments(shlex.split(SERVE), "here")
    assert (values(found), found.opaque) == (dict(DEFAULTS), "")
    assert {seen.where for seen in found.seen.values()} == {"here (not given: vLLM's default)"}
    assert "max_num_seqs" not in found.seen


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (SERVE + "--config /etc/vllm.yaml --max-num-seqs 8", "/etc/vllm.yaml"),
        (["sh", "-c", "vllm serve x $EXTRA --max-num-seqs 8"], "$EXTRA"),
    ],
)
def test_a_command_that_does_not_tell_everything_leaves_the_rest_unknown(command: str | list[str], says: str) -> None:
    found = start_arguments(shlex.split(command) if isinstance(command, str) else command, "here")
    assert says in found.opaque
    assert values(found) == {"max_num_seqs": "8"}


def test_a_parameter_whose_value_is_not_told_is_unknown_and_not_its_default() -> None:
    found = start_arguments(["sh", "-c", "vllm serve x --tensor-parallel-size $TP"], "here")
    assert "tensor_parallel_size" not in found.seen
    assert values(found)["pipeline_parallel_size"] == "1"


@pytest.mark.parametrize(
    "words", [[], ["sleep", "99"], ["python", "serve.py", "--max-num-seqs", "8"], ["sh", "-c", "vllm 'serve"]]
)
def test_another_program_tells_nothing(words: list[str]) -> None:
    found = start_arguments(words, "here")
    assert (found.seen, found.opaque) == ({}, "no start command of vLLM is in it")


@given(st.integers(1, 10**9))
def test_whole_numbers_read_back(number: int) -> None:
    assert whole_number(str(number)) == number
    assert whole_number(f"{number}k") == number * 1000
    assert whole_number(f"{number}K") == number * 1024


@given(st.lists(st.text(max_size=20), max_size=8))
def test_no_words_break_it(words: list[str]) -> None:
    start_arguments(words, "here")
    start_arguments(["sh", "-c", " ".join(words)], "here")


@pytest.mark.parametrize(
    "text",
    [
        "http://a:8000/metrics: vllm serve x --max-num-seqs 8\n'*': vllm serve y --max-num-seqs 9\n",
        json.dumps({"a:8000": ["vllm", "serve", "x", "--max-num-seqs", 8], "*": "vllm serve y --max-num-seqs 9"}),
    ],
)
def test_an_args_file_maps_addresses_to_commands(tmp_path: Path, text: str) -> None:
    file = tmp_path / "engines.yaml"
    file.write_text(text)
    read = read_args_file(file)
    one, other = arguments_of("http://a:8000/metrics", read), arguments_of("http://b:8000/metrics", read)
    assert one is not None
    assert other is not None
    assert (one.seen["max_num_seqs"].value, other.seen["max_num_seqs"].value) == ("8", "9")
    assert one.seen["max_num_seqs"].where.startswith(str(file))


def test_an_args_file_may_be_one_command_for_all(tmp_path: Path) -> None:
    file = tmp_path / "start.sh"
    file.write_text("vllm serve x \\\n  --hf-overrides '{\"a\": 1}' \\\n  --max-num-seqs 8\n")
    assert read_args_file(file)[EVERY].seen["max_num_seqs"].value == "8"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("'http://': vllm serve x", "is not an address"),
        ("a:8000: sleep 9", "holds no start command"),
        ("a:8000: {x: 1}", "is no command"),
        ("a:8000: 'vllm serve \"x'", "is no command"),
        ("sleep 9", "holds no start command"),
    ],
)
def test_a_wrong_args_file_says_what_and_how(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "engines.yaml"
    file.write_text(text)
    with pytest.raises(BadInput) as error:
        read_args_file(file)
    assert says in str(error.value)
    assert str(file) in str(error.value)
    with pytest.raises(BadInput, match="cannot be read"):
        read_args_file(tmp_path / "absent.yaml")
