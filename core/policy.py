"""The signed policy document that guards obey: canonical body, entries, HMAC signatures, verification.

Document: ``{"body": "<canonical JSON text>", "signatures": [{"key_id", "hmac_sha256"}]}``. The signature is the lower-case hex
HMAC-SHA256 of the body's UTF-8 bytes, exactly as transmitted: a verifier never re-serialises. See ADR 0004.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from core.errors import BadInput, Refused
from core.scopes import parse_scope
from core.windows import epoch_ms, require_utc

Action = Literal["reject", "truncate", "reroute", "delay", "limit"]
Mode = Literal["enforce", "warn"]
OnExpiry = Literal["open", "closed"]
LIMIT_NAMES: tuple[str, ...] = ("max_prompt_tokens", "max_output_tokens", "max_concurrent_long", "tokens_per_min")


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """One instruction. ``tier`` 0 is a standing limit; ``exempt`` holds scopes it does not touch; the higher ``priority`` wins;
    ``breaker`` and ``epoch`` say which decision it stems from (0 when none); a shadow entry is counted, never obeyed; ``within``
    holds scopes that must all cover the request too."""

    id: str
    scope: str
    tier: int
    action: Action
    reason: str
    priority: int = 0
    reroute_to: str = ""
    limits: Mapping[str, int] = field(default_factory=dict)
    allowed_models: tuple[str, ...] = ()
    retry_after_s: int = 0
    exempt: tuple[str, ...] = ()
    shadow: bool = False
    breaker: int = 0
    epoch: int = 0
    mode: Mode = "enforce"
    within: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        parse_scope(self.scope)
        for scope in self.exempt:
            parse_scope(scope, "exempt")
        for scope in self.within:
            parse_scope(scope, "within")
        if self.action not in get_args(Action):
            raise BadInput(f"must be one of {', '.join(get_args(Action))}", field="action", value=self.action)
        if self.mode not in get_args(Mode):
            raise BadInput("must be enforce or warn", field="mode", value=self.mode)
        for name, value in self.limits.items():
            if name not in LIMIT_NAMES or isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise BadInput(
                    f"must be one of {', '.join(LIMIT_NAMES)} with a whole number", field=f"limits.{name}", value=value
                )

    def as_json(self) -> dict[str, Any]:
        """The entry as the body's JSON object (every field present, but ``within`` only where there is one)."""
        found = {**asdict(self), "limits": dict(self.limits)}
        return found if self.within else {name: value for name, value in found.items() if name != "within"}


@dataclass(frozen=True, slots=True)
class PolicyBody:
    """What one guard is to obey from ``issued_at`` until ``expires_at`` (aware UTC, whole milliseconds). ``identity`` are the
    identity rules (``core.identity_guard``), None where there are none."""

    version: int
    issued_at: datetime
    expires_at: datetime
    guard: str
    on_expiry: OnExpiry
    entries: tuple[PolicyEntry, ...]
    identity: Mapping[str, Any] | None = None

    def canonical(self) -> str:
        """The canonical JSON text that is signed."""
        rules = {} if self.identity is None else {"identity": self.identity}
        return canonical_json(
            {
                "version": self.version,
                "issued_at": rfc3339(self.issued_at),
                "expires_at": rfc3339(self.expires_at),
                "guard": self.guard,
                "on_expiry": self.on_expiry,
                "entries": [entry.as_json() for entry in self.entries],
                **rules,
            }
        )


@dataclass(frozen=True, slots=True)
class SigningKey:
    """One of a guard's keys; at most two are valid at a time, so that a key can be changed without a gap."""

    key_id: str
    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) < 16:
            raise BadInput("a signing key needs at least 16 bytes", field="secret", hint="make one with 32 random bytes")


def canonical_json(value: Any) -> str:
    """Sorted keys, no blanks, UTF-8 unescaped, no floats (their text differs between writers). Raises BadInput on a float."""
    _refuse_floats(value, "$")
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _refuse_floats(value: Any, where: str) -> None:
    if isinstance(value, float):
        raise BadInput("canonical JSON holds no floats", field=where, value=value, hint="write a decimal string")
    if isinstance(value, Mapping):
        for key, item in value.items():
            _refuse_floats(item, f"{where}.{key}")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _refuse_floats(item, f"{where}[{index}]")


def rfc3339(at: datetime) -> str:
    """``2026-11-30T12:00:00.000Z``: UTC, milliseconds always written."""
    return require_utc(at).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def digest(entries: Sequence[PolicyEntry], identity: Mapping[str, Any] | None = None) -> str:
    """Hex SHA-256 of entries and identity rules: equal exactly when guards are told the same."""
    told = canonical_json([entry.as_json() for entry in entries])
    if identity is not None:
        told += canonical_json(identity)
    return hashlib.sha256(told.encode()).hexdigest()


def next_version(last: int | None, now: datetime) -> int:
    """max(last + 1, unix milliseconds): grows even when the clock steps back or the database was restored."""
    return max((last or 0) + 1, epoch_ms(now))


def sign(body: str, keys: Sequence[SigningKey]) -> dict[str, Any]:
    """The document for a guard: the body's text and one signature per key (one or two)."""
    if not 1 <= len(keys) <= 2:
        raise BadInput("a guard has one or two valid signing keys", field="keys", value=len(keys))
    return {"body": body, "signatures": [{"key_id": k.key_id, "hmac_sha256": _hmac(k, body)} for k in keys]}


def _hmac(key: SigningKey, body: str) -> str:
    return hmac.new(key.secret, body.encode("utf-8"), hashlib.sha256).hexdigest()


def verify(document: Mapping[str, Any], keys: Sequence[SigningKey], guard: str, held_version: int, now: datetime) -> PolicyBody:
    """Check a document the way a guard does. Raises Refused (signature, guard, version, expiry) or BadInput (shape)."""
    body = document.get("body")
    if not isinstance(body, str):
        raise BadInput("must be the canonical JSON text", field="body", value=type(body).__name__)
    if not any(_signed_by(key, body, document.get("signatures")) for key in keys):
        raise Refused("no signature of a key this guard knows fits the policy", hint="check the guard's keys")
    parsed = parse_body(body)
    if parsed.guard != guard:
        raise Refused(f"the policy is meant for guard {parsed.guard!r}, not {guard!r}")
    if parsed.version < held_version:
        raise Refused(f"policy version {parsed.version} is older than the held {held_version}")
    if parsed.expires_at <= now:
        raise Refused(f"the policy expired at {rfc3339(parsed.expires_at)}")
    return parsed


def _signed_by(key: SigningKey, body: str, signatures: object) -> bool:
    expected = _hmac(key, body)
    found = False
    for item in signatures if isinstance(signatures, list) else []:
        given = item.get("hmac_sha256", "") if isinstance(item, Mapping) and item.get("key_id") == key.key_id else ""
        found |= hmac.compare_digest(str(given).encode(), expected.encode())
    return found


def parse_body(text: str) -> PolicyBody:
    """Read a canonical body. Unknown keys of a newer writer are ignored. Raises BadInput."""
    try:
        raw = json.loads(text)
        return PolicyBody(
            version=int(raw["version"]),
            issued_at=_time(raw["issued_at"]),
            expires_at=_time(raw["expires_at"]),
            guard=str(raw["guard"]),
            on_expiry=raw["on_expiry"],
            entries=tuple(entry_from_json(entry) for entry in raw["entries"]),
            identity=raw.get("identity"),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"not a policy body: {error!r}", field="body") from error


def entry_from_json(raw: Mapping[str, Any]) -> PolicyEntry:
    """One entry of a body or of the stored policy. Raises KeyError/TypeError on a broken shape, BadInput on a broken value."""
    known = {name: raw[name] for name in PolicyEntry.__dataclass_fields__ if name in raw}
    for name in ("allowed_models", "exempt", "within"):
        known[name] = tuple(known.get(name, ()))
    return PolicyEntry(**known)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)
