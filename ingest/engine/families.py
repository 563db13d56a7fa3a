"""Metrics page bytes -> series, by prometheus_client's parsers. A page that was cut short is refused whole."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_classic
from prometheus_client.samples import Sample

from core.errors import BadInput

MAX_PAGE_BYTES = 32 * 1024 * 1024
CUT = "page was cut short"
_OPEN_COUNTER = re.compile(r"^# TYPE (\S+) counter\n\1_total[{ ]", re.MULTILINE)
_SERIES_LINE = re.compile(r"([A-Za-z_:][\w:]*)(?:\{.*\})?[ \t]+[-+.\w]+(?:[ \t]+-?\d+)?\s*", re.ASCII)


def read_series(body: bytes, content_type: str, where: str, wanted: Callable[[str], bool]) -> list[Sample]:
    """The series of the page whose exposed name is ``wanted``.

    OpenMetrics when the content type or a closing ``# EOF`` says so. Raises BadInput: empty, too large, not UTF-8, cut short
    (no final line break, no ``# EOF``, a histogram without its sum), or not a metrics page.
    """
    if len(body) > MAX_PAGE_BYTES:
        raise BadInput(f"page is larger than {MAX_PAGE_BYTES} bytes", where=where, value=len(body))
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput("page is not UTF-8", where=where, hint="is this a metrics address?") from error
    if not text.strip():
        raise BadInput("page is empty", where=where)
    is_open = "openmetrics" in content_type.lower() or text.rstrip().endswith("\n# EOF")
    if is_open and not text.rstrip("\n").endswith("# EOF"):
        raise BadInput(CUT, where=where, field="last line", value=text[-60:], hint="OpenMetrics must end with # EOF")
    if not is_open:
        _check_whole(text, where)
    try:
        found = parse_openmetrics(text.rstrip("\n") + "\n") if is_open else parse_classic(_narrow(text, wanted))  # type: ignore[no-untyped-call]
        return [sample for family in found for sample in family.samples if wanted(sample.name)]
    except Exception as error:  # the third-party parsers raise whatever a bad line makes them trip over
        raise BadInput(f"not a metrics page: {error}", where=where, hint="is this a metrics address?") from error


def _narrow(text: str, wanted: Callable[[str], bool]) -> str:
    """Only the lines to read, and those that do not look like a series (the parser shall refuse them): a tenth of a real page."""

    is_wanted = cache(wanted)

    def keep(line: str) -> bool:
        match = _SERIES_LINE.fullmatch(line)
        return match is None or is_wanted(match[1])

    return "\n".join(line for line in text.split("\n") if line and not line.startswith("#") and keep(line)) + "\n"


def _check_whole(text: str, where: str) -> None:
    if not text.endswith("\n"):
        raise BadInput(CUT, where=where, field="last line", value=text[-60:], hint="the last line has no line break")
    if _OPEN_COUNTER.search(text):
        raise BadInput(CUT, where=where, hint="it is written as OpenMetrics and lacks the closing # EOF")
    last = next((line for line in reversed(text.split("\n")) if line and not line.startswith("#")), "")
    name = re.split(r"[{ ]", last, maxsplit=1)[0]
    family = re.sub(r"_(bucket|count|sum)$", "", name)
    if f"# TYPE {family} histogram" not in text:
        return
    sums, counts = (len(re.findall(rf"^{re.escape(family)}_{part}[{{ ]", text, re.MULTILINE)) for part in ("sum", "count"))
    if name.endswith("_bucket") or sums != counts:
        raise BadInput(CUT, where=where, field="last line", value=last, hint="its last histogram has no sum and count")
