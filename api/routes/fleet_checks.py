"""The newest round of fleet checks, as the scrape process made it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, get_args

from api.deps import CallerDep, ConnectionDep, router
from api.query import RowsDep
from api.schemas.fleet_checks import FleetChecksOut
from api.tenancy import require_all_tenants
from core.fleet_checks import CHECKS, Finding
from core.fleet_facts import SubjectKind, Verdict
from models.fleet_repo import read_findings

routes = router("read", tags=["fleet"])


@routes.get("/v1/fleet/checks", response_model=FleetChecksOut)
def fleet_checks(
    caller: CallerDep,
    connection: ConnectionDep,
    rows: RowsDep,
    verdict: Verdict | None = None,
    kind: SubjectKind | None = None,
) -> dict[str, Any]:
    """Each engine and gateway against the list of settings that make tokens dear or numbers untrue; once an hour, and
    `tokenfuse doctor fleet` at any time."""
    require_all_tenants(caller, "how engines and gateways are set")
    found, checked_at = read_findings(connection)
    chosen = [one for one in found if verdict in (None, one.verdict) and kind in (None, one.kind)]
    return {
        "rows": rows.of([_row(one) for one in chosen]),
        "total_rows": len(chosen),
        "counts": {name: sum(one.verdict == name for one in found) for name in get_args(Verdict)},
        "checked_at": checked_at,
    }


def _row(one: Finding) -> dict[str, Any]:
    """A row of a check that this version no longer has keeps its answer."""
    about = CHECKS.get(one.check)
    told = {name: value or None for name, value in asdict(one).items()}
    return {**told, "reason": one.reason, "what": about.what if about else "", "why": about.why if about else ""}
