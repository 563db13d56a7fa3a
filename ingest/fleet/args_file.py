"""``--args-file``: start commands of engines, where no pod tells them. YAML or JSON that maps addresses to commands, or one
command for all engines."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

import yaml

from core.errors import BadInput
from core.fleet_gateway import host_port
from ingest.fleet.arguments import StartArguments, start_arguments

EVERY = "*"
MAX_BYTES = 1024 * 1024
HINT = "write lines such as  http://vllm-0:8000/metrics: vllm serve MODEL --max-num-seqs 256"


def read_args_file(file: Path) -> Mapping[str, StartArguments]:
    """Arguments by ``HOST:PORT``; ``*`` is for every other engine. Raises BadInput naming file and line."""
    try:
        text = file.read_bytes()[: MAX_BYTES + 1].decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot be read: {error}", where=str(file), field="--args-file", hint=HINT) from error
    if len(text) > MAX_BYTES or not text.strip():
        raise BadInput("is empty" if not text.strip() else "is too large", where=str(file), field="--args-file", hint=HINT)
    try:
        body = yaml.safe_load(text)
    except yaml.YAMLError:
        body = text
    if isinstance(body, dict) and not any(" " in str(name) for name in body):  # a command may look like a mapping: '{"a": 1}'
        return {_key(name, file): _command(value, str(name), file) for name, value in body.items()}
    return {EVERY: _command(body if isinstance(body, list) else text, EVERY, file)}


def arguments_of(target: str, read: Mapping[str, StartArguments]) -> StartArguments | None:
    return read.get(host_port(target)) or read.get(EVERY)


def _key(name: object, file: Path) -> str:
    text = str(name)
    if text == EVERY:
        return EVERY
    key = host_port(text if "://" in text else f"http://{text}")
    if not key:
        raise BadInput("is not an address", where=str(file), field="--args-file", value=text, hint=HINT)
    return key


def _command(value: object, name: str, file: Path) -> StartArguments:
    if isinstance(value, list) and all(isinstance(word, (str, int, float)) for word in value):
        words = [str(word) for word in value]
    elif isinstance(value, str) and value.strip():
        try:
            words = shlex.split(re.sub(r"\\\r?\n", " ", value))
        except ValueError as error:
            raise BadInput(f"is no command: {error}", where=str(file), field=name, value=value, hint=HINT) from error
    else:
        raise BadInput("is no command", where=str(file), field=name, value=value, hint=HINT)
    found = start_arguments(words, f"{file} ({name})")
    if not found.seen and found.opaque.startswith("no start command"):
        raise BadInput("holds no start command of vLLM", where=str(file), field=name, value=" ".join(words), hint=HINT)
    return found
