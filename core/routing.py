"""Which incidents a channel is told of: routes by scope, severity and owner. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from core.errors import BadInput
from core.incident import SEVERITIES, Incident, Severity
from core.scopes import Scope, parse_scope


@dataclass(frozen=True, slots=True)
class Route:
    """Takes what is in ``scope`` (``platform``: everything), at least ``severity``, and of ``owner`` where one is named."""

    scope: Scope
    severity: Severity = "notice"
    owner: str = ""

    def takes(self, incident: Incident) -> bool:
        loud = SEVERITIES.index(incident.severity) >= SEVERITIES.index(self.severity)
        return loud and self.scope.covers(parse_scope(incident.scope)) and self.owner in ("", incident.owner)


def route_of(scope: str, severity: str, owner: str) -> Route:
    """Raises BadInput naming the field."""
    found = next((one for one in SEVERITIES if one == severity), None)
    if found is None:
        raise BadInput(f"must be one of {', '.join(SEVERITIES)}", field="severity", value=severity)
    return Route(parse_scope(scope), found, owner)


def is_routed(routes: Iterable[Route], incident: Incident) -> bool:
    """Whether any route takes it; no route takes nothing."""
    return any(route.takes(incident) for route in routes)
