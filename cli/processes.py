"""The processes ``up`` supervises, each a function that runs until it is told to stop."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from datetime import timedelta

from cli.settings import Settings
from cli.wiring import (
    breaker_policy,
    control_settings,
    database_url,
    event_log,
    guard_keys_file,
    stream_settings,
    utc_now,
)
from models.database import open_engine, start_embedded

log = logging.getLogger("tokenfuse")


def stop_on_signal() -> threading.Event:
    """An event that SIGINT and SIGTERM set."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop


def run_api(settings: Settings) -> int:
    from api.app import create_app
    from api.server import Server
    from api.settings import ApiSettings

    engine = open_engine(database_url(settings), pool_size=10, short_reads=True)
    with event_log(settings) as spool:
        app = create_app(
            ApiSettings(
                data_dir=settings.data_dir.resolve(),
                bind_host=settings.bind_host,
                bind_port=settings.api_port,
                zone=settings.zone,
                vendor_price_order=settings.vendor_price_order,
                currency=settings.currency,
                organisation=settings.organisation,
                default_cluster=settings.default_cluster,
                default_namespace=settings.default_namespace,
                node_tags=settings.node_tags,
                max_body_mb=settings.max_body_mb,
                max_unpacked_mb=4 * settings.max_body_mb,
                dedupe_horizon=timedelta(days=settings.dedupe_horizon_days),
                guard_keys_file=guard_keys_file(settings),
                policy_on_expiry=settings.guard_on_expiry,
                breaker_policy=breaker_policy(settings),
                tls_cert=settings.tls_cert,
                tls_key=settings.tls_key,
            ),
            engine,
            spool,
        )
        served = Server(
            app,
            host=settings.bind_host,
            port=settings.api_port,
            ssl_certfile=str(settings.tls_cert) if settings.tls_cert else None,
            ssl_keyfile=str(settings.tls_key) if settings.tls_key else None,
        ).serve_until_told()
    engine.dispose()
    return 0 if served else 1


def run_stream(settings: Settings) -> int:
    from streaming import run as stream_run

    return stream_run.main(stream_settings(settings, database_url(settings)), False, now=utc_now, stop=stop_on_signal())


def run_control(settings: Settings) -> int:
    from control.loop import run

    run(control_settings(settings, database_url(settings)), stop_on_signal())
    return 0


def run_scrape(settings: Settings) -> int:
    from cli.scraping import run_scrape as scrape

    return scrape(settings, stop_on_signal())


def run_postgres(settings: Settings) -> int:
    """Keeps the embedded server up: adopts the one that runs, starts it again when it died."""
    stop = stop_on_signal()
    folder = (settings.data_dir / "pg").resolve()
    while not stop.wait(1.0):
        if not _answers(folder):
            log.warning("the embedded PostgreSQL is down and is started again")
            start_embedded(folder)
    return 0


def _answers(folder: object) -> bool:
    import psycopg

    try:
        psycopg.connect(host=str(folder), user="postgres", dbname="postgres", connect_timeout=3).close()
    except psycopg.OperationalError:
        return False
    return True


def run_ui(settings: Settings) -> int:
    """Streamlit in this process: everything after ``--`` is ours (see ``ui.launch``)."""
    from streamlit.web import cli as streamlit

    import ui

    flags = {
        "server.port": settings.ui_port,
        "server.address": settings.bind_host,
        "server.headless": "true",
        "server.fileWatcherType": "none",
        "browser.gatherUsageStats": "false",
        "client.toolbarMode": "minimal",
        "theme.light.primaryColor": "#2563eb",
        "theme.dark.primaryColor": "#60a5fa",
    }
    if settings.tls_cert and settings.tls_key:
        flags |= {"server.sslCertFile": str(settings.tls_cert), "server.sslKeyFile": str(settings.tls_key)}
    words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    token_file = settings.data_dir / "run" / "demo-reader.token"
    ours = ["--api-url", settings.api_url, *(["--demo", "--token-file", str(token_file)] if token_file.exists() else [])]
    sys.argv = ["streamlit", "run", f"{next(iter(ui.__path__))}/app.py", *words, "--", *ours]
    code: int = streamlit.main(standalone_mode=False) or 0
    return code


def run_demo_gateway(settings: Settings) -> int:
    """Only in a demo's folder: the stand-in gateway with a real guard in it."""
    import uvicorn

    from cli.demo.gateway import create_gateway, read_credentials

    guard, sender = read_credentials(settings.data_dir / "run", settings.api_url)
    sender.start()
    uvicorn.run(
        create_gateway(guard, sender), host=settings.bind_host, port=settings.demo_port, log_config=None, access_log=False
    )
    sender.stop()
    return 0


PROCESSES: Mapping[str, Callable[[Settings], int]] = {
    "postgres": run_postgres,
    "api": run_api,
    "stream": run_stream,
    "control": run_control,
    "scrape": run_scrape,
    "ui": run_ui,
    "demo-gateway": run_demo_gateway,
}
"""Names in the order they are started."""
