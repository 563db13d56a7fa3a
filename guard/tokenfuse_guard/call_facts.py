"""What a LiteLLM call says of itself, as values of the identity rules' fields: the same words that the usage record will bear.

The gateway proves the key, and with it its alias, team, user, own tags and own labels. The end user, request tags, headers and
request labels are the client's word: they count only where the rules mark the field as set by the gateway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple

from tokenfuse_guard.guard import Guard
from tokenfuse_guard.identity import first_of, joined, labelled, said_path, service_tier_of, tag_of, tags_of
from tokenfuse_guard.identity_rules import RuleVersion, Values

MAX_LABEL, MAX_LABEL_NAME, MAX_TAGS = 64, 48, 100
SECRET_WORDS = ("auth", "cookie", "credential", "password", "secret", "token", "api-key", "api_key", "apikey")
LABELS = ("requester_metadata", "spend_logs_metadata", "user_api_key_auth_metadata")
"""Where LiteLLM keeps labels, the owner's last: it wins."""
NOTHING = ("",)


class CallFacts(NamedTuple):
    """``user`` is the key's owner (LiteLLM's UserAPIKeyAuth), ``labelled`` the metadata LiteLLM itself writes to."""

    user: Any
    data: Mapping[str, Any]
    labelled: Mapping[str, Any]
    model: str
    deployment: str
    default_org: str
    default_tier: str
    key_names: Mapping[str, str]


Reader = Callable[[CallFacts], "tuple[str, ...]"]


def values_of(facts: CallFacts, version: RuleVersion) -> Values:
    """The values of the version's fields."""
    if version.readers is None:
        version.readers = [_READERS[field.partition(".")[0]](field, version.trusts) for field in version.fields]
    return tuple([read(facts) for read in version.readers])


def charge_of(guard: Guard, user: Any, data: Mapping[str, Any], model: str, deployment: str) -> tuple[str, str]:
    """The tenant path and service tier of a call: as the gateway knows them, or as the identity rules in force make it."""
    settings, rules = guard.settings, guard.rules
    tags = tags_of(data) if settings.trust_tags else ()
    said, tier = said_path(user, data, tags, settings.org), service_tier_of(tags, settings.service_tier)
    version = None if rules is None else rules.at(guard.now_s())
    if rules is None or version is None:
        return joined(said), tier
    facts = CallFacts(user, data, labelled(data), model, deployment, settings.org, settings.service_tier, rules.key_names)
    charge = version.charge(said, tier, values_of(facts, version))
    return joined(charge.path), charge.service_tier


Trusts = Callable[[str], bool]


def _owner(part: str, *names: str) -> Callable[[str, Trusts], Reader]:
    def reader(_: str, trusts: Trusts) -> Reader:
        is_trusted, default = trusts(f"tag.{part}"), part == "org"

        def read(facts: CallFacts) -> tuple[str, ...]:
            found = first_of(facts.user, *names) or tag_of(_tags(facts, is_trusted), part)
            return (found or (facts.default_org if default else ""),)

        return read

    return reader


def _user(field: str, trusts: Trusts) -> Reader:
    if trusts(field):
        return lambda facts: (str(facts.data.get("user") or "") or first_of(facts.user, "end_user_id", "user_id"),)
    return lambda facts: (first_of(facts.user, "user_id"),)


def _key_alias(_: str, __: Trusts) -> Reader:
    def read(facts: CallFacts) -> tuple[str, ...]:
        alias = first_of(facts.user, "key_alias")
        return (alias if is_label(alias) else facts.key_names.get(key_id_of(facts.user), ""),)

    return read


def _service_tier(_: str, trusts: Trusts) -> Reader:
    is_trusted = trusts("tag.service_tier")

    def read(facts: CallFacts) -> tuple[str, ...]:
        return (service_tier_of(_tags(facts, is_trusted), facts.default_tier),)

    return read


def _deployed(place: int) -> Callable[[str, Trusts], Reader]:
    def read(facts: CallFacts) -> tuple[str, ...]:
        parts = facts.deployment.split("/", 2)
        return (parts[place] if len(parts) > place else "",)

    return lambda _, __: read


def _tag_values(field: str, trusts: Trusts) -> Reader:
    name, is_trusted = field[len("tag.") :], trusts(field)
    starts = (f"{name}:", f"{name}=")

    def read_one(facts: CallFacts) -> tuple[str, ...]:
        for tag in _kept(_tags(facts, is_trusted)):
            if tag.startswith(starts) and is_label(tag):
                return (tag[len(name) + 1 :].strip(),)
        return NOTHING

    def read_all(facts: CallFacts) -> tuple[str, ...]:
        return tuple([tag for tag in _kept(_tags(facts, is_trusted)) if is_label(tag)]) or NOTHING

    return read_one if name else read_all


def _kept(tags: tuple[str, ...]) -> Sequence[str]:
    """The tags a usage record has room for."""
    return tags if len(tags) <= MAX_TAGS else [tag for tag in tags if is_label(tag)][:MAX_TAGS]


def _header_value(field: str, trusts: Trusts) -> Reader:
    name = field[len("header.") :]
    if not trusts(field) or name != name.lower() or not may_be_kept(name):
        return lambda _: NOTHING
    return lambda facts: (header_of(facts.data, name),)


def _metadata(field: str, trusts: Trusts) -> Reader:
    name, places = field[len("metadata.") :], LABELS if trusts(field) else LABELS[-1:]
    if not may_be_kept(name):
        return lambda _: NOTHING

    def read(facts: CallFacts) -> tuple[str, ...]:
        found: Any = ""
        for place in places:
            labels = facts.labelled.get(place)
            if isinstance(labels, dict) and name in labels:
                found = labels[name]
        return (found if is_label(found) else "",)

    return read


_READERS: dict[str, Callable[[str, Trusts], Reader]] = {
    "org": _owner("org", "organization_alias", "org_id"),
    "team": _owner("team", "team_alias", "team_id"),
    "project": _owner("project", "project_alias", "project_id"),
    "user": _user,
    "key_id": lambda _, __: lambda facts: (key_id_of(facts.user),),
    "key_alias": _key_alias,
    "service_tier": _service_tier,
    "requested_model": lambda _, __: lambda facts: (facts.model,),
    "cluster": _deployed(0),
    "namespace": _deployed(1),
    "model_id": _deployed(2),
    "gateway": lambda _, __: lambda _facts: ("litellm",),
    "tag": _tag_values,
    "header": _header_value,
    "metadata": _metadata,
}


def _tags(facts: CallFacts, is_trusted: bool) -> tuple[str, ...]:
    """The request's tags where they count, else those of the key, its team and project alone."""
    if is_trusted:
        return tags_of(facts.data)
    found: tuple[str, ...] = ()
    for owner in ("metadata", "team_metadata", "project_metadata"):
        labels = getattr(facts.user, owner, None)
        if labels:
            tags = labels.get("tags")
            if isinstance(tags, list):
                found += tuple([tag for tag in tags if isinstance(tag, str)])
    return found


def key_id_of(user: Any) -> str:
    """The hash by which usage knows a key."""
    return first_of(user, "api_key", "token")


def header_of(data: Mapping[str, Any], name: str) -> str:
    """A header of the client's request, '' where there is none, or none that is a label."""
    request = data.get("proxy_server_request")
    headers = request.get("headers") if isinstance(request, dict) else None
    value = headers.get(name) if isinstance(headers, Mapping) else None
    return value if is_label(value) else ""


def logged_headers(guard: Guard, request: Any) -> dict[str, str]:
    """The headers that rules look at, for the usage record: LiteLLM itself logs only those that begin with x-, and these
    only with its enterprise package."""
    rules = guard.rules
    if rules is None or not rules.headers or not isinstance(request, dict):
        return {}
    found = {name: header_of(request, name) for name in rules.headers if may_be_kept(name)}
    return {name: value for name, value in found.items() if value}


def may_be_kept(name: str) -> bool:
    """Whether a header or label of this name may be looked at: nothing that is named like a secret."""
    return is_label(name) and len(name) <= MAX_LABEL_NAME and not any(word in name.lower() for word in SECRET_WORDS)


def is_label(value: Any) -> bool:
    """A short printable text: what a usage record keeps of a label."""
    return isinstance(value, str) and 0 < len(value) <= MAX_LABEL and value.isprintable()
