"""The kinds of channels: what each needs, and how it is made of a stored channel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Engine

from control.notify.http_call import Caller
from control.notify.jira import JiraEffector, JiraSettings
from control.notify.secret_refs import check_reference, read_secret
from control.notify.ticket_store import StoredTickets
from core.errors import BadInput
from core.message import LANGUAGES
from core.ports import Effector
from models.channel_repo import Channel


@dataclass(frozen=True, slots=True)
class Making:
    """What an effector is made of."""

    channel: Channel
    engine: Engine
    now: Callable[[], datetime]
    environ: Mapping[str, str] = field(repr=False)

    @property
    def config(self) -> Mapping[str, Any]:
        return self.channel.config

    @property
    def caller(self) -> Caller:
        return Caller(allow_private=bool(self.config.get("allow_private")))

    @property
    def tickets(self) -> StoredTickets:
        return StoredTickets(self.engine, self.channel.name, self.now)

    def secret(self, name: str) -> Callable[[], str]:
        return lambda: read_secret(name, self.channel.secrets[name], self.environ)


@dataclass(frozen=True, slots=True)
class Kind:
    """``needs`` and ``may`` are names of config values, ``secrets`` of references that are needed, ``may_secrets`` of others."""

    make: Callable[[Making], Effector]
    needs: tuple[str, ...] = ()
    may: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    may_secrets: tuple[str, ...] = ()


def _jira(making: Making) -> Effector:
    return JiraEffector(jira_settings(making), making.tickets, making.caller)


def jira_settings(making: Making) -> JiraSettings:
    config = making.config
    return JiraSettings(
        url=config["url"],
        project=config["project"],
        token=making.secret("token"),
        flavour="datacenter" if making.channel.kind == "jira-dc" else "cloud",
        email=config.get("email", ""),
        issue_type=config.get("issue_type", "Task"),
        done_transition=config.get("done_transition", ""),
        language=making.channel.language,
    )


KINDS: Mapping[str, Kind] = {
    "jira": Kind(_jira, ("url", "project", "email"), ("issue_type", "done_transition"), ("token",)),
    "jira-dc": Kind(_jira, ("url", "project"), ("issue_type", "done_transition"), ("token",)),
}
COMMON = ("allow_private",)


def check_channel(channel: Channel) -> Channel:
    """The channel itself, if its kind can be made of it. Raises BadInput naming what is missing or too much."""
    kind = KINDS.get(channel.kind)
    if kind is None:
        raise BadInput(f"must be one of {', '.join(KINDS)}", field="kind", value=channel.kind)
    if channel.language not in LANGUAGES:
        raise BadInput(f"must be one of {', '.join(LANGUAGES)}", field="language", value=channel.language)
    _check_names("config", channel.config, kind.needs, (*kind.may, *COMMON))
    _check_names("secret", channel.secrets, kind.secrets, kind.may_secrets)
    for name, reference in channel.secrets.items():
        check_reference(f"secret {name}", reference)
    if '"' in str(channel.config.get("project", "")):
        raise BadInput("must not hold a quote", field="config project", value=channel.config["project"])
    return channel


def _check_names(what: str, given: Mapping[str, Any], needs: tuple[str, ...], may: tuple[str, ...]) -> None:
    missing = [name for name in needs if not given.get(name)]
    unknown = [name for name in given if name not in (*needs, *may)]
    if missing:
        raise BadInput(f"is needed: {', '.join(missing)}", field=what, hint=f"give --{what} {missing[0]}=…")
    if unknown:
        raise BadInput(f"is not known: {', '.join(unknown)}", field=what, hint=f"known: {', '.join((*needs, *may)) or 'none'}")


def effector_of(channel: Channel, engine: Engine, now: Callable[[], datetime], environ: Mapping[str, str]) -> Effector:
    """The effector of a stored channel; its secrets are read when something is delivered."""
    return KINDS[channel.kind].make(Making(channel, engine, now, environ))
