"""What a LiteLLM proxy tells of itself, by its admin calls or by its configuration file.

Shapes read from LiteLLM 1.95.1: ``/health/readiness`` is public and tells ``db`` alone; ``/health/readiness/details`` (in older
versions the public one) adds ``litellm_version``; ``/get/config/callbacks`` lists ``{name, variables, type}``; ``/model/info``
lists ``{model_name, litellm_params, model_info}``; ``/config/list`` wants a database.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import yaml

from core.errors import BadInput
from core.fleet_facts import OFF, ON, Callback, GatewayFacts, GatewayModel, Seen
from core.vendor_place import OWN_PROVIDERS
from ingest.fleet.calls import Answer, get_json, new_client
from ingest.usage.litellm_call import OPENAI_LIKE, VENDOR_HOSTS

ENDPOINT = "GENERIC_LOGGER_ENDPOINT"
USAGE = "always_include_stream_usage"
CALLBACK_FIELDS: Mapping[str, str] = {
    "callbacks": "success_and_failure",
    "success_callback": "success",
    "failure_callback": "failure",
}


def ask_litellm(url: str, key: str, transport: httpx.BaseTransport | None = None) -> GatewayFacts:
    """Never raises for what the proxy does: what it does not tell is in ``silent``."""
    base = url.rstrip("/")
    with new_client({"authorization": f"Bearer {key}"} if key else None, transport=transport) as client:
        ready = get_json(client, f"{base}/health/readiness")
        if ready.status == 0:
            return GatewayFacts(url, down=ready.why)
        details = get_json(client, f"{base}/health/readiness/details")
        callbacks = get_json(client, f"{base}/get/config/callbacks")
        models = get_json(client, f"{base}/model/info")
        settings = get_json(client, f"{base}/config/list?config_type=general_settings")
    silent = {
        f"GET {path}": _why(answer)
        for path, answer in (
            ("/get/config/callbacks", callbacks), ("/model/info", models), ("/config/list", settings)
        )
        if answer.status != 200
    }  # fmt: skip
    return GatewayFacts(
        url=url,
        down="" if ready.status == 200 else f"is not ready: {ready.why}",
        seen={**_health(ready, details, base), **_stream_usage(settings, base)},
        callbacks=_callbacks(callbacks, f"GET {base}/get/config/callbacks"),
        models=_models(models, f"GET {base}/model/info"),
        silent=silent,
    )


def _why(answer: Answer) -> str:
    told = answer.body.get("error") or answer.body.get("detail") if isinstance(answer.body, dict) else None
    inner = told.get("message") or told.get("error") if isinstance(told, dict) else told
    return f"{answer.why}{f' ({str(inner)[:120]})' if isinstance(inner, str) else ''}"


def _health(ready: Answer, details: Answer, base: str) -> dict[str, Seen]:
    found: dict[str, Seen] = {}
    for answer, path in ((ready, "/health/readiness"), (details, "/health/readiness/details")):
        body = answer.body if isinstance(answer.body, dict) else {}
        where = f"GET {base}{path}"
        if isinstance(body.get("db"), str):
            found["database"] = Seen(body["db"].lower(), where)
        if isinstance(body.get("litellm_version"), str):
            found["version"] = Seen(body["litellm_version"], where)
        if isinstance(body.get("success_callbacks"), list):
            found["active_callbacks"] = Seen(", ".join(map(str, body["success_callbacks"])), where)
    return found


def _stream_usage(answer: Answer, base: str) -> dict[str, Seen]:
    """The list holds the field whether it is set or not; null: not set."""
    rows = answer.body if answer.status == 200 and isinstance(answer.body, list) else []
    for row in rows:
        if isinstance(row, dict) and row.get("field_name") == USAGE:
            return {USAGE: Seen(ON if row.get("field_value") is True else OFF, f"GET {base}/config/list")}
    return {}


def _callbacks(answer: Answer, where: str) -> tuple[Callback, ...] | None:
    rows = answer.body.get("callbacks") if answer.status == 200 and isinstance(answer.body, dict) else None
    if not isinstance(rows, list):
        return None
    found: list[Callback] = []
    for row in rows:
        if isinstance(row, dict) and isinstance(row.get("name"), str):
            endpoint = _plain(_part(row, "variables").get(ENDPOINT))
            found.append(Callback(row["name"], str(row.get("type", "")), where, endpoint))
    return tuple(found)


def _plain(endpoint: object) -> str:
    """An address as it is told; LiteLLM masks values for some keys, and a masked one is none."""
    return endpoint if isinstance(endpoint, str) and "://" in endpoint and "*" not in endpoint else ""


def _models(answer: Answer, where: str) -> tuple[GatewayModel, ...] | None:
    rows = answer.body.get("data") if answer.status == 200 and isinstance(answer.body, dict) else None
    return gateway_models(rows, where) if isinstance(rows, list) else None


def gateway_models(rows: Iterable[Any], where: str) -> tuple[GatewayModel, ...]:
    """Deployments of ``/model/info`` or of a configuration's ``model_list``."""
    found: list[GatewayModel] = []
    for row in rows:
        params = row.get("litellm_params") if isinstance(row, dict) else None
        if isinstance(params, dict) and isinstance(params.get("model"), str):
            told = params.get("api_base")
            base = told if isinstance(told, str) else ""
            options = params.get("stream_options")
            asks = isinstance(options, dict) and options.get("include_usage") is True
            model = params["model"]
            found.append(GatewayModel(str(row.get("model_name", model)), model, base, is_own(model, base), asks, where))
    return tuple(found)


def is_own(model: str, api_base: str) -> bool:
    """Whether a deployment runs on an engine of ours, by the same words as the usage records of this gateway."""
    provider = model.partition("/")[0] if "/" in model else "openai"
    host = urlsplit(api_base).hostname or "" if "://" in api_base else ""
    return provider in OWN_PROVIDERS or (provider in OPENAI_LIKE and bool(host) and not host.endswith(VENDOR_HOSTS))


def read_config(file: Path, url: str) -> GatewayFacts:
    """The proxy's ``config.yaml``. Raises BadInput naming the file."""
    try:
        body = yaml.safe_load(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadInput(f"cannot be read: {error}", where=str(file), field="--litellm-config") from error
    if not isinstance(body, dict) or not any(part in body for part in ("model_list", "litellm_settings", "general_settings")):
        hint = "give the config.yaml the proxy is started with"
        raise BadInput("is no LiteLLM configuration", where=str(file), field="--litellm-config", hint=hint)
    general, module = _part(body, "general_settings"), _part(body, "litellm_settings")
    where, variables = str(file), _part(body, "environment_variables")
    endpoint = _plain(variables.get(ENDPOINT))
    callbacks = [
        Callback(name, on, where, endpoint if name == "generic_api" else "")
        for key, on in CALLBACK_FIELDS.items()
        for name in _names(module.get(key))
    ]
    seen = {USAGE: Seen(ON if general.get(USAGE) is True else OFF, where)}
    if "disable_spend_logs" in general:
        seen["spend_log"] = Seen(OFF if general["disable_spend_logs"] is True else ON, where)
    rows = body.get("model_list")
    models = gateway_models(rows, where) if isinstance(rows, list) else ()
    return GatewayFacts(url, seen=seen, callbacks=tuple(callbacks), models=models)


def _part(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = body.get(name)
    return part if isinstance(part, dict) else {}


def _names(value: Any) -> Sequence[str]:
    return [value] if isinstance(value, str) else [str(one) for one in value] if isinstance(value, list) else []


def completed(asked: GatewayFacts, given: GatewayFacts | None) -> GatewayFacts:
    """What the proxy told, and from its configuration what it did not."""
    if given is None:
        return asked
    return GatewayFacts(
        url=asked.url,
        down=asked.down,
        seen={**given.seen, **asked.seen},
        callbacks=given.callbacks if asked.callbacks is None else asked.callbacks,
        models=given.models if asked.models is None else asked.models,
        silent=asked.silent,
    )
