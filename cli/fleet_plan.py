"""From settings to one round of fleet checks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from pathlib import Path

from sqlalchemy import Engine

from cli.settings import Settings
from cli.sources import discovery_sources, prometheus_settings, servers_read
from cli.wiring import utc_now
from core.fleet_checks import Finding
from core.fleet_facts import GatewayFacts
from ingest.fleet.args_file import read_args_file
from ingest.fleet.gather import FleetPlan, StoredEngines, inspect
from ingest.fleet.litellm import read_config
from models.database import transaction
from models.fleet_repo import gpus_in_service, replace_findings

log = logging.getLogger("tokenfuse")
REACHED = frozenset({"answers", "gateway_answers"})
EVERY_S = 3600.0
SOONER_S = 300.0
"""After a round in which something did not answer: at a start engines may still be loading."""


def fleet_plan(
    settings: Settings,
    *,
    args_file: Path | None = None,
    litellm_config: Path | None = None,
    declared: Mapping[str, tuple[str, int]] | None = None,
) -> FleetPlan:
    """Every target, discovery block, Prometheus and gateway of the settings. Raises BadInput for a wrong file or block."""
    key = settings.litellm_key.get_secret_value() if settings.litellm_key else ""
    given: GatewayFacts | None = None
    if litellm_config is not None:
        given = read_config(litellm_config, settings.litellm_url or str(litellm_config))
    return FleetPlan(
        sources=discovery_sources(settings),
        stored=[StoredEngines(prometheus_settings(one), one.gpu, one.count) for one in servers_read(settings)],
        gateways=[(settings.litellm_url, key)] if settings.litellm_url else [],
        arguments=read_args_file(args_file) if args_file is not None else {},
        declared=declared or {},
        gateway_config=given,
    )


def check_fleet(settings: Settings, engine: Engine) -> list[Finding]:
    """One round, kept as the newest."""
    with transaction(engine) as connection:
        declared = gpus_in_service(connection)
    findings = inspect(fleet_plan(settings, declared=declared), utc_now)
    with transaction(engine) as connection:
        replace_findings(connection, findings, utc_now())
    return findings


def keep_checking(settings: Settings, engine: Engine, stop: threading.Event) -> None:
    """Once an hour until ``stop``; a round that breaks is logged, and the one before stays."""
    while not stop.is_set():
        wait_s = EVERY_S
        try:
            findings = check_fleet(settings, engine)
            log.info("fleet checked", extra={"checks": len(findings), "fails": sum(one.verdict == "fail" for one in findings)})
            if any(one.verdict == "fail" and one.check in REACHED for one in findings):
                wait_s = SOONER_S
        except Exception:
            if stop.is_set():
                return
            log.exception("the fleet could not be checked; the last answers stay")
            wait_s = SOONER_S
        stop.wait(wait_s)
