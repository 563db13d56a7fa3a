"""What a budget, limit, exemption or breaker is about, as the text that every part exchanges.

``tenant:ORG[/TEAM[/PROJECT[/USER]]]``, ``deployment:CLUSTER/NAMESPACE/MODEL`` (the model id may hold slashes),
``service_tier:P0|P1|P2``, ``platform``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from core.errors import BadInput
from core.usage import MAX_NAME, SERVICE_TIERS, Deployment, TenantPath

ScopeKind = Literal["tenant", "deployment", "service_tier", "platform"]
HINT = "write tenant:ORG[/TEAM[/PROJECT[/USER]]], deployment:CLUSTER/NAMESPACE/MODEL, service_tier:P2 or platform"


@dataclass(frozen=True, slots=True, order=True)
class Scope:
    """A parsed scope; ``parts`` are its path without the kind (empty for the platform)."""

    kind: ScopeKind
    parts: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.kind if self.kind == "platform" else f"{self.kind}:{'/'.join(self.parts)}"

    def covers(self, other: Scope) -> bool:
        """Whether everything in ``other`` is in this scope too (a scope covers itself)."""
        if self.kind == "platform":
            return True
        return self.kind == other.kind and other.parts[: len(self.parts)] == self.parts

    @property
    def tenant(self) -> TenantPath:
        """The tenant path of a tenant scope (absent parts '')."""
        return TenantPath(*self.parts)

    @property
    def deployment(self) -> Deployment:
        """The deployment of a deployment scope."""
        return Deployment(*self.parts)


def require_path_part(name: str, field: str) -> str:
    """The name itself, where it can stand in ORG/TEAM/PROJECT/USER. Raises BadInput naming ``field``."""
    if not name or len(name) > MAX_NAME or not name.isprintable() or set(name) & {"/", '"', "\\"}:
        hint = "a tenant path is ORG/TEAM/PROJECT/USER, so a name holds no slash, quote or backslash"
        raise BadInput(f"must be a name of 1 to {MAX_NAME} characters", field=field, value=name[:80], hint=hint)
    return name


def parse_scope(text: str, field: str = "scope") -> Scope:
    """Read a scope's text. Raises BadInput naming ``field``."""
    kind, _, path = text.partition(":")
    if text == "platform":
        return Scope("platform")
    if kind == "tenant":
        return Scope("tenant", _names(path.split("/"), 1, 4, text, field))
    if kind == "deployment":
        return Scope("deployment", _names(path.split("/", 2), 3, 3, text, field))
    if kind == "service_tier":
        if path not in SERVICE_TIERS:
            raise BadInput(f"service tier must be one of {', '.join(SERVICE_TIERS)}", field=field, value=text)
        return Scope("service_tier", (path,))
    raise BadInput("unknown kind of scope", field=field, value=text, hint=HINT)


def _names(parts: list[str], least: int, most: int, text: str, field: str) -> tuple[str, ...]:
    if not least <= len(parts) <= most or not parts[-1] or (least == 1 and not all(parts)):
        raise BadInput("scope has missing or too many parts", field=field, value=text, hint=HINT)
    for part in parts:
        if len(part) > MAX_NAME or not part.isprintable() or '"' in part or "\\" in part or part != part.strip():
            raise BadInput(
                f"a part holds a control character, quote, backslash, outer blank or over {MAX_NAME} characters",
                field=field,
                value=text,
            )
    return tuple(parts)
