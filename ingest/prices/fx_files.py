"""Files of exchange rates: our own CSV, and the European Central Bank's reference rates (eurofxref-hist, also packed, or the
sheet of one day). Forms: https://www.ecb.europa.eu/stats/eurofxref/."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, DecimalException
from pathlib import Path

from core.errors import BadInput
from core.fx import FxRate
from core.fx_guard import GivenRate

MAX_BYTES = 64_000_000
FIELDS = ("day", "base", "quote", "rate", "source")
ECB = "ECB euro foreign exchange reference rates"
EURO = "EUR"
NO_RATE = ("", "N/A")
Rows = Iterator[tuple[int, list[str]]]


@dataclass(frozen=True, slots=True)
class FxFile:
    """What a file says; ``refused``: lines with the reason, which do not hold up the others."""

    given: tuple[GivenRate, ...]
    refused: tuple[str, ...]

    @property
    def rates(self) -> tuple[FxRate, ...]:
        return tuple(one.rate for one in self.given)


def read_fx_file(path: Path, form: str, today: date) -> FxFile:
    """Read ``form`` fx (``day,base,quote,rate,source``) or ecb. Raises BadInput for a file of another form."""
    text = _text(path)
    rows = ((number, [cell.strip() for cell in row]) for number, row in enumerate(csv.reader(io.StringIO(text)), 1) if any(row))
    _, header = next(rows, (1, []))
    judge = _own(header, path.name) if form == "fx" else _ecb(header, path.name)
    return _judged(rows, judge, path.name, today)


def _judged(rows: Rows, judge: Callable[[list[str]], Iterator[FxRate]], name: str, today: date) -> FxFile:
    given: list[GivenRate] = []
    refused: list[str] = []
    for line, row in rows:
        try:
            for rate in judge(row):
                if rate.day > today:
                    raise BadInput("is in the future", field="day", value=rate.day.isoformat())
                given.append(GivenRate(rate, f"{name}:{line}"))
        except BadInput as error:
            error.where = f"{name}:{line}"
            refused.append(str(error))
    return FxFile(tuple(given), tuple(refused))


def _own(header: Sequence[str], name: str) -> Callable[[list[str]], Iterator[FxRate]]:
    missing = [field for field in FIELDS if field not in header]
    if missing:
        raise BadInput("is missing", where=f"{name}:1", field=missing[0], hint=f"the first line names {','.join(FIELDS)}")
    place = {field: header.index(field) for field in FIELDS}

    def judge(row: list[str]) -> Iterator[FxRate]:
        if len(row) != len(header):
            raise BadInput(f"has {len(row)} cells, the first line {len(header)}")
        day, base, quote, rate, source = (row[place[field]] for field in FIELDS)
        yield FxRate(_day(day), base, quote, _rate(rate), source)

    return judge


def _ecb(header: Sequence[str], name: str) -> Callable[[list[str]], Iterator[FxRate]]:
    if not header or header[0] != "Date" or len(header) < 2:
        raise BadInput(
            "is no table of the ECB",
            where=f"{name}:1",
            field="Date",
            hint="the first line begins with Date,USD,JPY; or --format fx",
        )

    def judge(row: list[str]) -> Iterator[FxRate]:
        day = _day(row[0])
        for quote, cell in zip(header[1:], row[1:], strict=False):
            if quote and cell not in NO_RATE:
                yield FxRate(day, EURO, quote, _rate(cell), ECB)

    return judge


def _text(path: Path) -> str:
    try:
        body = path.read_bytes()
        if zipfile.is_zipfile(io.BytesIO(body)):
            body = _unpacked(body, path)
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", where=str(path), hint="name a CSV file") from error
    if len(body) > MAX_BYTES:
        raise BadInput(f"is larger than {MAX_BYTES} bytes", where=str(path))
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput("is not UTF-8 text", where=str(path)) from error


def _unpacked(body: bytes, path: Path) -> bytes:
    with zipfile.ZipFile(io.BytesIO(body)) as packed:
        names = [info for info in packed.infolist() if info.filename.lower().endswith(".csv")]
        if len(names) != 1 or names[0].file_size > MAX_BYTES:
            raise BadInput("must hold one CSV file", where=str(path))
        return packed.read(names[0])


def _day(text: str) -> date:
    for form in ("%Y-%m-%d", "%d %B %Y"):
        try:
            return datetime.strptime(text, form).date()  # noqa: DTZ007 a calendar day, no instant
        except ValueError:
            continue
    raise BadInput("is no day", field="day", value=text, hint="write 2026-07-31")


def _rate(text: str) -> Decimal:
    try:
        return Decimal(text)
    except DecimalException as error:
        raise BadInput("is no number", field="rate", value=text, hint="write 1.0842") from error
