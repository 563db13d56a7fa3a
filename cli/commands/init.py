"""``tokenfuse init``: the essentials, asked or given as flags, written to ``tokenfuse.toml``."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from cli.options import Run, common
from cli.output import print_json, say
from cli.settings import load, settings_file
from core.currencies import require_currency
from core.errors import Conflict
from core.scopes import require_path_part
from core.windows import zone as require_zone


@click.command()
@click.option("--vllm-url", prompt="vLLM metrics URL", default="http://127.0.0.1:8000/metrics", show_default=True)
@click.option("--model", prompt="Model id, as the gateway calls it")
@click.option("--gpu", prompt="GPU type (a name of `tokenfuse rates list`)", default="A10G", show_default=True)
@click.option("--gpu-count", prompt="How many of them", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--node", prompt="Node name", default="node-1", show_default=True)
@click.option("--litellm-url", prompt="LiteLLM URL (empty: none)", default="", show_default=False)
@click.option("--litellm-key", prompt="LiteLLM key (empty: none)", default="", show_default=False, hide_input=True)
@click.option("--organisation", prompt="Your organisation", default="default", show_default=True)
@click.option("--currency", prompt="Reporting currency", default="USD", show_default=True)
@click.option("--zone", prompt="Reporting time zone", default="UTC", show_default=True)
@click.option("--force", is_flag=True, help="replace a settings file that is there")
@common
def init(
    run: Run, vllm_url: str, model: str, gpu: str, gpu_count: int, node: str, litellm_url: str, litellm_key: str,
    organisation: str, currency: str, zone: str, force: bool,
) -> None:  # fmt: skip
    """Write tokenfuse.toml. What else can be set is in tokenfuse.example.toml."""
    file = settings_file()
    if file.exists() and not force:
        raise Conflict(f"{file} is there already", hint="edit it, or pass --force to replace it")
    require_zone(zone)
    require_currency(currency, "--currency")
    require_path_part(organisation, "--organisation")
    values = {
        "organisation": organisation,
        "currency": currency,
        "zone": zone,
        "litellm_url": litellm_url,
        "litellm_key": litellm_key,
    }
    lines = [f"{name} = {_toml(value)}" for name, value in values.items() if value]
    target: dict[str, str | int] = {"url": vllm_url, "gpu": gpu, "count": gpu_count, "node": node, "model_id": model}
    lines += ["", "[[targets]]", *(f"{name} = {_toml(value)}" for name, value in target.items())]
    _write_private(file, "\n".join(lines) + "\n")
    load()
    if run.as_json:
        print_json({"settings_file": file, "targets": [target]})
    else:
        say(f"Wrote {file}. Next: `tokenfuse doctor`, then `tokenfuse up`.")


def _toml(value: str | int) -> str:
    return json.dumps(value, ensure_ascii=False)


def _write_private(file: Path, text: str) -> None:
    """It may hold a key, so only its owner may read it."""
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
        out.write(text)
