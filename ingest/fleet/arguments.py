"""The start command of a vLLM server -> its parameters, each with the place it was read in.

Written from vLLM's own command line: dashes or underscores, ``--name value`` or ``--name=value``, ``--no-…`` switches, short
forms, ``32k`` (thousands) and ``32K`` (1024). A command that is not whole (a ``--config`` file, a variable nobody tells) leaves
what it does not say unknown; in a whole one what is not said is vLLM's default.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from core.fleet_facts import OFF, ON, Seen

WHOLE_NUMBERS: Mapping[str, str] = {
    "max-model-len": "max_model_len",
    "max-num-seqs": "max_num_seqs",
    "max-num-batched-tokens": "max_num_batched_tokens",
    "tensor-parallel-size": "tensor_parallel_size",
    "tp": "tensor_parallel_size",
    "pipeline-parallel-size": "pipeline_parallel_size",
    "pp": "pipeline_parallel_size",
    "data-parallel-size": "data_parallel_size",
    "dp": "data_parallel_size",
    "block-size": "block_size",
    "kv-cache-memory-bytes": "kv_cache_memory_bytes",
    "kv-cache-memory": "kv_cache_memory_bytes",
}
TEXTS: Mapping[str, str] = {"gpu-memory-utilization": "gpu_memory_utilization", "kv-cache-dtype": "kv_cache_dtype"}
SWITCHES: Mapping[str, tuple[str, str]] = {
    "enable-prefix-caching": ("prefix_caching", ON),
    "enable-chunked-prefill": ("chunked_prefill", ON),
    "enforce-eager": ("enforce_eager", ON),
    "enable-prompt-tokens-details": ("prompt_tokens_details", ON),
    "enable-force-include-usage": ("force_include_usage", ON),
    "disable-log-stats": ("log_stats", OFF),
}
DEFAULTS: Mapping[str, str] = {
    "tensor_parallel_size": "1",
    "pipeline_parallel_size": "1",
    "data_parallel_size": "1",
    "enforce_eager": OFF,
    "prompt_tokens_details": OFF,
    "force_include_usage": OFF,
    "log_stats": ON,
}
"""Those of every version, model and GPU. Batch and step sizes depend on the GPU, so they have none."""
SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh"})
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)([kmgtKMGT]?)")
_ENDS = frozenset(";&|()\n")
_THOUSANDS, _BINARY = "kmgt", "KMGT"
_POD_VARIABLE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")
_SHELL_VARIABLE = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})")


@dataclass(frozen=True, slots=True)
class StartArguments:
    """``opaque``: why the command does not tell everything, empty when it does."""

    seen: Mapping[str, Seen] = field(default_factory=dict)
    opaque: str = ""


def start_arguments(words: Sequence[str], where: str, environment: Mapping[str, str] | None = None) -> StartArguments:
    """``words`` is the command with its arguments; ``environment`` what its variables are, where that is known."""
    own = _own_words([_filled(word, _POD_VARIABLE, environment or {}) for word in words], environment or {})
    if own is None:
        return StartArguments(opaque="no start command of vLLM is in it")
    found, opaque = _parse(own)
    seen = {name: Seen(value, where) for name, value in found.items() if value is not None}
    if not opaque:
        default = f"{where} (not given: vLLM's default)"
        seen |= {name: Seen(value, default) for name, value in DEFAULTS.items() if name not in found}
    return StartArguments(seen, opaque)


def _own_words(words: Sequence[str], environment: Mapping[str, str]) -> list[str] | None:
    """The words after ``vllm serve`` (or the module's name); arguments alone stand for themselves. None: neither."""
    flat = list(words)
    if len(words) >= 3 and words[0].rpartition("/")[2] in SHELLS and words[1].startswith("-") and "c" in words[1]:
        flat = _shell_words(words[2], environment)
    for place, word in enumerate(flat):
        after = flat[place + 1 :]
        if word.startswith("vllm.entrypoints.") or (word == "serve" and place and flat[place - 1].rpartition("/")[2] == "vllm"):
            end = next((n for n, part in enumerate(after) if part and set(part) <= _ENDS), len(after))
            return after[:end]
    return flat if flat and flat[0].startswith("-") else None


def _shell_words(script: str, environment: Mapping[str, str]) -> list[str]:
    joined = re.sub(r"\\\r?\n", " ", script).replace("\n", " ; ")
    lexer = shlex.shlex(_filled(joined, _SHELL_VARIABLE, environment), posix=True, punctuation_chars=";&|()")
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:
        return []


def _filled(text: str, variable: re.Pattern[str], environment: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        name = next(group for group in match.groups() if group)
        return environment.get(name, match[0])

    return variable.sub(value, text)


def _parse(words: Sequence[str]) -> tuple[dict[str, str | None], str]:
    """(parameters, why not all are told); None is a parameter that is given a value nobody tells."""
    found: dict[str, str | None] = {}
    opaque = ""
    for place, word in enumerate(words):
        if not word.startswith("-") or word == "-":
            if word.startswith("$") and (not place or not words[place - 1].startswith("--")):
                opaque = f"{word} holds arguments that are not told"
            continue
        name, _, given = word.lstrip("-").partition("=")
        value = given if "=" in word else words[place + 1] if place + 1 < len(words) else ""
        name = name.replace("_", "-")
        if name == "config":
            opaque = f"it reads {value}, which is not told"
        told = _told(name, value)
        if told is not None:
            found[told[0]] = told[1]
    return found, opaque


def _told(name: str, value: str) -> tuple[str, str | None] | None:
    """(parameter, value) of one flag; None for a flag that does not matter here."""
    if name in WHOLE_NUMBERS:
        number = whole_number(value)
        return WHOLE_NUMBERS[name], None if number is None else str(number)
    if name in TEXTS:
        return TEXTS[name], None if "$" in value or not value else value
    if name in SWITCHES:
        return SWITCHES[name]
    opposite = SWITCHES.get(name.removeprefix("no-")) if name.startswith("no-") else None
    return None if opposite is None else (opposite[0], OFF if opposite[1] == ON else ON)


def whole_number(text: str) -> int | None:
    """``32768``, ``32k`` (32,000), ``32K`` (32,768), ``25.6k``; None for anything else (``auto``, ``-1``, a variable)."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    number, unit = Decimal(match[1]), match[2]
    if unit in _THOUSANDS and unit:
        number *= 1000 ** (_THOUSANDS.index(unit) + 1)
    elif unit:
        number *= 1024 ** (_BINARY.index(unit) + 1)
    return int(number) if number == int(number) else None
