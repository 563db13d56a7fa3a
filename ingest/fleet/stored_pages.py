"""The newest page of each engine that a Prometheus stores, for engines that are read there and not scraped."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from core.errors import BadInput, Refused, Unavailable
from core.ports import Page
from core.windows import from_epoch_ms
from ingest.engine.names import name_table
from ingest.prometheus.api import PrometheusApi, Series
from ingest.prometheus.reader import NAMES_PER_QUERY, is_read
from ingest.prometheus.scrapes import body_of, choose, sort_out
from ingest.prometheus.settings import PrometheusSettings

RECENT = timedelta(minutes=5)
SETTLED = timedelta(seconds=1)


def stored_pages(settings: PrometheusSettings) -> tuple[list[Page], str]:
    """(pages, why there are none). Targets bear their instance's address."""
    try:
        api = PrometheusApi(settings.access)
    except BadInput as error:
        return [], str(error)
    try:
        return _newest(api, settings), ""
    except (Unavailable, Refused, BadInput) as error:
        return [], str(error)
    finally:
        api.close()


def _newest(api: PrometheusApi, settings: PrometheusSettings) -> list[Page]:
    end = api.now() + SETTLED
    start = end - RECENT
    names = [name for name in api.names(start, end, settings.match) if is_read(name)]
    series: list[Series] = []
    for place in range(0, len(names), NAMES_PER_QUERY):
        series += api.raw(_matchers(names[place : place + NAMES_PER_QUERY], settings.match), start, end)
    found, _ = sort_out(series, settings, {}, name_table().process_start)
    pages: list[Page] = []
    for target, route in choose(found, {}).items():
        at, lines = max(found[route].pages.items())
        pages.append(Page(target, from_epoch_ms(at), body_of(lines)))
    return pages


def _matchers(names: Sequence[str], match: str) -> str:
    return ",".join(part for part in (f'__name__=~"{"|".join(names)}"', match) if part)
