"""From the series of one engine, GPU or model to one canonical number, by the table's sources."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from prometheus_client.samples import Sample

from ingest.engine.names import Family, Source

Series = Mapping[str, Sequence[Sample]]
"""Series of one thing by name without prefix."""
Found = tuple[int | None, str | None]
"""The number, or None with what was there instead; (None, None) when no source is on the page."""
Total = Callable[[Sequence[Sample], Source, Collection[float]], Found]


def number(series: Series, sources: Sequence[Source], family: Family, total: Total) -> Found:
    """The canonical number by the first source that has any series; ``total`` makes one number of a source's series."""
    for source in sources:
        if source.info:
            product = _info_product(series, source)
            if product is None:
                continue
            return (product, None) if product <= source.most else (None, str(product))
        parts = [[s for s in series.get(name, ()) if source.takes(s.labels)] for name in (source.series, *source.plus)]
        if all(parts):
            return _plus([total(rows, source, family.blanks) for rows in parts])
    return None, None


def _plus(parts: Sequence[Found]) -> Found:
    sum_of = 0
    for value, problem in parts:
        if value is None:
            return None, problem
        sum_of += value
    return sum_of, None


def of_all(rows: Sequence[Sample], source: Source, blanks: Collection[float]) -> Found:
    """The sum (or mean) of the series; one wrong value makes it unknown. A label set given twice is wrong too."""
    if len({frozenset(row.labels.items()) for row in rows}) < len(rows):
        return None, f"{source.series} is on the page twice"
    sum_of = 0
    for row in rows:
        value, problem = scaled(row.value, source, blanks)
        if value is None:
            return None, problem
        sum_of += value
    return (sum_of if source.of == "sum" else sum_of // len(rows)), None


def of_one_device(rows: Sequence[Sample], source: Source, blanks: Collection[float]) -> Found:
    """The one number that a device shows once for every pod that shares it (B21: never their sum)."""
    shown = {row.value for row in rows}
    if len(shown) > 1:
        return None, f"{source.series} differs between the pods of one GPU: {min(shown)} to {max(shown)}"
    return scaled(rows[0].value, source, blanks)


def scaled(value: float, source: Source, blanks: Collection[float]) -> Found:
    if value in blanks:
        return None, f"{value:.0f} means no value"
    if not 0 <= value <= source.most:
        return None, f"{value} is not within 0 to {source.most:g}"
    if source.scale == source.per == 1 and value != int(value):
        return None, f"{value} is not whole"
    return round(value * source.scale / source.per), None


def _info_product(series: Series, source: Source) -> int | None:
    """The product of whole positive label values; None when one is absent, "None" or 0 (not known yet at start)."""
    if source.series not in series:
        return None
    labels, product = series[source.series][0].labels, 1
    for name in source.info:
        text = labels.get(name, "")
        if not (text.isascii() and text.isdigit() and len(text) < 16):
            return None
        product *= int(text)
    return product or None
