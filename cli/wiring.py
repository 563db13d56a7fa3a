"""From settings to running parts: the one place that knows everybody."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from sqlalchemy import Connection, Engine

from cli.settings import Settings, TargetSetting
from control.fleet.registry import FleetSettings
from control.ledger_close import CloseSettings
from control.loop import ControlSettings
from control.notify.webhook import WebhookSettings
from core.breaker_values import BreakerPolicy
from core.capacity import NodeService
from core.usage import Deployment
from eventlog.spool import SpoolLog, SpoolSettings
from ingest.discovery.kube_access import KubeAccess, from_kubeconfig, in_cluster
from ingest.engine.scraper import Target
from ingest.prices.rate_card import default_rate_card
from ingest.usage.intake import build_ingest
from ingest.usage.service import UsageIngest
from models.database import open_engine, start_embedded, transaction, upgrade
from models.partitions import ensure_months
from models.rates_repo import add_rates, declare_service, read_rates
from streaming.settings import StreamSettings


def utc_now() -> datetime:
    return datetime.now(UTC)


def database_url(settings: Settings) -> str:
    """The given URL, or that of the embedded server in DATA/pg, which is started or adopted."""
    if settings.db_url is not None:
        return settings.db_url.get_secret_value()
    return start_embedded((settings.data_dir / "pg").resolve())


@contextmanager
def database(settings: Settings) -> Iterator[Engine]:
    """An engine on an up-to-date schema."""
    engine = ready_database(settings, database_url(settings))
    try:
        yield engine
    finally:
        engine.dispose()


def ready_database(settings: Settings, url: str) -> Engine:
    """Bring the schema to head and make sure prices and the inventory of the settings stand in it."""
    upgrade(url)
    engine = open_engine(url)
    with transaction(engine) as connection:
        ensure_months(connection, [utc_now(), utc_now() + timedelta(days=32)])
        if settings.default_rates and not read_rates(connection):
            add_rates(connection, default_rate_card().rates, utc_now())
        declare_targets(connection, settings.targets)
    return engine


def declare_targets(connection: Connection, targets: Iterable[TargetSetting]) -> None:
    """Put the GPUs of complete targets into the inventory from now on; ``doctor`` names the incomplete ones."""
    for target in targets:
        if target.kind == "engine" and target.gpu and target.count and target.node and target.model_id:
            declare_service(
                connection,
                NodeService(
                    deployment=Deployment(target.cluster, target.namespace, target.model_id),
                    target=scrape_target(target).name,
                    node=target.node,
                    gpu_type=target.gpu,
                    gpu_count=target.count,
                    since=utc_now(),
                ),
                "settings",
            )


def scrape_target(target: TargetSetting) -> Target:
    return Target(
        target.url, target.gpu, target.count, target.node, target.cluster, target.namespace, target.model_id or None, target.kind
    )


@contextmanager
def event_log(settings: Settings) -> Iterator[SpoolLog]:
    """The spool of the data folder, flushed and closed at the end."""
    spool = SpoolLog(
        settings.data_dir / "log",
        SpoolSettings(
            segment_age_s=settings.segment_age_ms / 1000,
            segment_bytes=settings.segment_mb * 2**20,
            reserve_bytes=settings.min_free_mb * 2**20,
        ),
        utc_now,
    )
    try:
        yield spool
    finally:
        spool.close()


def usage_ingest(settings: Settings, engine: Engine, log: SpoolLog) -> UsageIngest:
    """The usage judge of this process."""
    return build_ingest(engine, log, settings.data_dir, timedelta(days=settings.dedupe_horizon_days), utc_now)


def stream_settings(settings: Settings, url: str, *, web_port: int | None = None) -> StreamSettings:
    return StreamSettings(
        data_dir=settings.data_dir.resolve(),
        database_url=url,
        parallelism=settings.stream_parallelism,
        checkpoint_ms=settings.checkpoint_ms,
        dedupe_horizon_days=settings.dedupe_horizon_days,
        web_port=settings.flink_port if web_port is None else web_port,
        epoch_hours=settings.epoch_hours,
        keep_delta_days=settings.delta_retention_days,
        keep_archive_days=settings.archive_retention_days,
    )


def breaker_policy(settings: Settings) -> BreakerPolicy:
    return BreakerPolicy(max_refused_share=Decimal(settings.blast_limit_percent) / 100)


def close_settings(settings: Settings) -> CloseSettings:
    return CloseSettings(
        grace=timedelta(minutes=settings.ledger_grace_minutes),
        currency=settings.currency,
        vendor_order=settings.vendor_price_order,
    )


def control_settings(settings: Settings, url: str) -> ControlSettings:
    webhook = None
    if settings.webhook_url:
        secret = settings.webhook_secret.get_secret_value().encode() if settings.webhook_secret else b""
        webhook = WebhookSettings(settings.webhook_url, secret, allow_private=settings.webhook_allow_private)
    return ControlSettings(
        database_url=url,
        policy=breaker_policy(settings),
        policy_ttl=timedelta(minutes=settings.policy_ttl_minutes),
        close=close_settings(settings),
        webhook=webhook,
        data_dir=settings.data_dir.resolve(),
        node_tags=settings.node_tags,
        fleet=fleet_settings(settings),
        environ=os.environ,
    )


def fleet_settings(settings: Settings) -> FleetSettings:
    return FleetSettings(
        litellm_url=settings.litellm_url,
        litellm_key=settings.litellm_key.get_secret_value() if settings.litellm_key else "",
        kubernetes=_kubernetes(settings),
        ec2=settings.fleet_ec2,
        aws_endpoint_url=settings.fleet_aws_endpoint_url,
    )


def _kubernetes(settings: Settings) -> KubeAccess | None:
    """The cluster that breakers may freeze. Raises BadInput for a kubeconfig that cannot be used."""
    if settings.fleet_kubeconfig == "in-cluster":
        return in_cluster(os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", ""))
    if settings.fleet_kubeconfig:
        return from_kubeconfig(Path(settings.fleet_kubeconfig), settings.fleet_kube_context)
    return None


def guard_keys_file(settings: Settings) -> Path:
    return settings.data_dir / "guards.json"
