"""The kinds of channels: what each needs, and how it is made of a stored channel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from control.notify.alertmanager import AlertmanagerEffector
from control.notify.dingtalk import DingTalkEffector
from control.notify.email import MailEffector, MailSettings
from control.notify.feishu import FeishuEffector
from control.notify.http_call import Caller
from control.notify.jira import JiraEffector, JiraSettings
from control.notify.secret_refs import check_reference, read_secret
from control.notify.slack_bot import SlackBotEffector
from control.notify.slack_webhook import SlackWebhookEffector
from control.notify.ticket_store import StoredTickets
from control.notify.wecom import WeComEffector
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


def _slack(making: Making) -> Effector:
    return SlackWebhookEffector(making.secret("url"), making.channel.language, making.caller)


def _slack_bot(making: Making) -> Effector:
    url = making.config.get("url", "https://slack.com")
    token, language = making.secret("token"), making.channel.language
    return SlackBotEffector(making.config["channel"], token, language, making.tickets, making.caller, url)


def _feishu(making: Making) -> Effector:
    return FeishuEffector(making.secret("url"), making.secret("secret"), making.channel.language, making.caller, making.now)


def _dingtalk(making: Making) -> Effector:
    return DingTalkEffector(making.secret("url"), making.secret("secret"), making.channel.language, making.caller, making.now)


def _wecom(making: Making) -> Effector:
    return WeComEffector(making.secret("url"), making.channel.language, making.caller)


def _alertmanager(making: Making) -> Effector:
    token = making.secret("token") if "token" in making.channel.secrets else None
    return AlertmanagerEffector(making.config["url"], token, making.channel.language, making.caller)


def _email(making: Making) -> Effector:
    config = making.config
    return MailEffector(
        MailSettings(
            host=config["host"],
            port=int(config.get("port", 587)),
            sender=config["sender"],
            to=tuple(one.strip() for one in config["to"].split(",")),
            security=config.get("security", "starttls"),
            username=config.get("username", ""),
            password=making.secret("password") if "password" in making.channel.secrets else None,
            ca_file=Path(config["ca_file"]) if "ca_file" in config else None,
            language=making.channel.language,
        )
    )


KINDS: Mapping[str, Kind] = {
    "jira": Kind(_jira, ("url", "project", "email"), ("issue_type", "done_transition"), ("token",)),
    "jira-dc": Kind(_jira, ("url", "project"), ("issue_type", "done_transition"), ("token",)),
    "slack": Kind(_slack, secrets=("url",)),
    "slack-bot": Kind(_slack_bot, ("channel",), ("url",), ("token",)),
    "feishu": Kind(_feishu, secrets=("url", "secret")),
    "dingtalk": Kind(_dingtalk, secrets=("url", "secret")),
    "wecom": Kind(_wecom, secrets=("url",)),
    "alertmanager": Kind(_alertmanager, ("url",), may_secrets=("token",)),
    "email": Kind(_email, ("host", "sender", "to"), ("port", "security", "username", "ca_file"), may_secrets=("password",)),
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
    _check_mail(channel.config)
    if '"' in str(channel.config.get("project", "")):
        raise BadInput("must not hold a quote", field="config project", value=channel.config["project"])
    return channel


def _check_mail(config: Mapping[str, Any]) -> None:
    """Raises BadInput for a port or security that is none; other kinds have neither."""
    port = str(config.get("port", "587"))
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise BadInput("must be a port, 1 to 65535", field="config port", value=port)
    if config.get("security", "starttls") not in ("starttls", "tls", "none"):
        raise BadInput("must be starttls, tls or none", field="config security", value=config["security"])


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
