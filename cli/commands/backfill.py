"""``tokenfuse backfill``: history from LiteLLM's own spend log, read only."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import timedelta
from itertools import islice
from typing import Any

import click

from cli.options import Run, common
from cli.output import Progress, print_rows
from cli.wiring import database, event_log, usage_ingest, utc_now
from core.errors import BadInput
from core.usage import Deployment, TenantPath
from ingest.usage.litellm_spendlog import read_spend_log, row
from ingest.usage.rows import SourceOptions

BATCH = 5_000


@click.command()
@click.option("--since", default="60d", show_default=True, metavar="SPAN", help="how far back, such as 60d or 12h")
@common
def backfill(run: Run, since: str) -> None:
    """Read LiteLLM's spend log (litellm_db_url) into the event log. Repeating it changes no total; coverage is shown per day."""
    if run.settings.litellm_db_url is None:
        raise BadInput(
            "is not set", where="settings", field="litellm_db_url", hint="give LiteLLM's own database, a read-only user is enough"
        )
    now = utc_now()
    options = SourceOptions(
        deployment=Deployment(run.settings.default_cluster, run.settings.default_namespace, ""),
        tenant=TenantPath(run.settings.organisation),
    )
    rows = read_spend_log(run.settings.litellm_db_url.get_secret_value(), now - _span(since), now)
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
        empty=f"The spend log holds no call since {now - _span(since):%Y-%m-%d}.",
    )


def _span(text: str) -> timedelta:
    match = re.fullmatch(r"(\d{1,4})([hd])", text)
    if match is None:
        raise BadInput("is not a span", field="--since", value=text, hint="write 60d or 12h")
    return timedelta(**{"h": {"hours": int(match[1])}, "d": {"days": int(match[1])}}[match[2]])


def _batches(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    source = iter(rows)
    while batch := list(islice(source, BATCH)):
        yield batch
