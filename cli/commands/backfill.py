"""``tokenfuse backfill``: history from LiteLLM's own spend log, read only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import click

from cli.options import Run, common
from cli.output import Progress, print_rows
from cli.settings_sources import span
from cli.wiring import database, event_log, usage_ingest, utc_now
from core.errors import BadInput
from core.usage import Deployment, TenantPath
from ingest.usage.litellm_spendlog import read_spend_log, row
from ingest.usage.rows import SourceOptions

BATCH = 5_000


@click.command()
@click.option("--since", default="60d", show_default=True, metavar="SPAN", help="how far back, such as 60d or 12h")
@click.option("--prometheus", is_flag=True, help="read the engines of the [[prometheus]] servers instead")
@common
def backfill(run: Run, since: str, prometheus: bool) -> None:
    """Read LiteLLM's spend log (litellm_db_url), or with --prometheus the engines a server kept, into the event log.

    Repeating it changes no total; coverage is shown per day."""
    if prometheus:
        from cli.commands.backfill_prometheus import backfill_prometheus

        backfill_prometheus(run, span(since, "--since"))
        return
    if run.settings.litellm_db_url is None:
        raise BadInput(
            "is not set", where="settings", field="litellm_db_url", hint="give LiteLLM's own database, a read-only user is enough"
        )
    now = utc_now()
    options = SourceOptions(
        deployment=Deployment(run.settings.default_cluster, run.settings.default_namespace, ""),
        tenant=TenantPath(run.settings.organisation),
    )
    start = now - span(since, "--since")
    rows = read_spend_log(run.settings.litellm_db_url.get_secret_value(), start, now)
    days: dict[str, Counter[str]] = {}
    progress, done = Progress("rows read"), 0
    with database(run.settings) as engine, event_log(run.settings) as log:
        ingest = usage_ingest(run.settings, engine, log)
        for batch in _batches(rows):
            verdicts = ingest.accept((row(done + i, item, options) for i, item in enumerate(batch, 1)), source="litellm-spendlog")
            for item, verdict in zip(batch, verdicts, strict=True):
                days.setdefault(str(item.get("startTime"))[:10], Counter())[verdict.verdict] += 1
            done += len(batch)
            progress(done)
    names = ("accepted", "duplicate", "quarantined")
    print_rows(
        [{"day": day, **{name: counts[name] for name in names}} for day, counts in sorted(days.items())],
        as_json=run.as_json,
        empty=f"The spend log holds no call since {start:%Y-%m-%d}.",
    )


def _batches(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    source = iter(rows)
    while batch := list(islice(source, BATCH)):
        yield batch
