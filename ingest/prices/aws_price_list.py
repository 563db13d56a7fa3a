"""Files of the AWS Price List: the bulk offer file of EC2 (CSV with five lines of metadata before its header, or JSON; also
gzip), streamed, and a table of its history by instance type.

Form: https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/reading-service-price-list-file-for-services.html. Taken are
on-demand prices of instances with accelerators, Linux without licence, shared tenancy, capacity in use, in one region.
"""

from __future__ import annotations

import csv
import gzip
import io
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal, DecimalException
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import duckdb

from core.billing import is_gpu_instance
from core.errors import BadInput
from core.price_list import Accelerators, InstancePrice, PriceSheet
from ingest.billing.instance_types import instance_type, smallest_with
from ingest.billing.lines import open_session
from ingest.billing.sql import gpu_sql, quoted, string, strings
from ingest.prices.json_members import JsonStream

META = ("FormatVersion", "Disclaimer", "Publication Date", "Version", "OfferCode")
WANTED: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "Operating System": ("operatingSystem", ("Linux",)),
    "Tenancy": ("tenancy", ("Shared",)),
    "Pre Installed S/W": ("preInstalledSw", ("NA",)),
    "CapacityStatus": ("capacitystatus", ("Used",)),
    "License Model": ("licenseModel", ("No License required",)),
    "Location Type": ("locationType", ("AWS Region",)),
}
"""CSV column, JSON attribute, and the values that are taken."""
MARKET = ("MarketOption", "marketoption", "OnDemand")
"""Rows of Capacity Blocks (at 0) have another market option. Old lists had no such column, and no such rows."""
HISTORY = ("instance_type", "usd_per_hour", "price_list_version")
THROUGH = "unchanged through "
SAME_GPU: Mapping[str, tuple[str, ...]] = {
    "A10G": ("A10G-24GB",), "L4": ("L4-24GB",), "L40S": ("L40S-48GB",), "H100-80GB": ("H100",),
}  # fmt: skip
"""Other names of a GPU in rate cards and inventories."""
SHAPE_HINT = "expected index.csv or index.json of offers/v1.0/aws/AmazonEC2"


def machines(prices: Iterable[InstancePrice]) -> dict[str, Accelerators]:
    """What the instances are, for those that are known."""
    found = {price.instance_type: instance_type("aws", price.instance_type) for price in prices}
    return {
        name: Accelerators((it.gpu, *SAME_GPU.get(it.gpu, ())), it.gpus, name == smallest_with("aws", it.gpu))
        for name, it in found.items()
        if it is not None
    }


def read_price_list(path: Path, region: str = "") -> list[PriceSheet]:
    """The versions a file holds: one, or those of a history. Raises BadInput for a file of another form, or (several regions in
    the file) when ``region`` is not said."""
    try:
        with _opened(path) as text:
            first = text.read(1 << 16)
        if first.lstrip("\ufeff \r\n")[:1] == "{":
            return [_json(path, region)]
        if "\t" in first and any(line.startswith(HISTORY[0]) for line in first.splitlines()[:20]):
            return _history(path, region)
        return [_csv(path, region)]
    except (OSError, EOFError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "is cut short"
        raise BadInput(f"cannot be read: {reason}", where=path.name, hint="download it again") from error
    except UnicodeDecodeError as error:
        raise BadInput("is not UTF-8 text", where=path.name) from error
    except BadInput as error:
        error.where = error.where or path.name
        raise


def _opened(path: Path) -> TextIO:
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rt", encoding="utf-8-sig") if packed else path.open(encoding="utf-8-sig")


def _csv(path: Path, region: str) -> PriceSheet:
    with _opened(path) as text:
        rows = csv.reader(islice(text, len(META) + 1))
        head = [next(rows, []) for _ in range(len(META) + 1)]
    meta = {row[0]: row[1] for row in head[:-1] if len(row) > 1}
    missing = [name for name in META if name not in meta]
    if missing:
        raise BadInput("is no AWS price list: is missing", field=missing[0], hint=SHAPE_HINT)
    with tempfile.TemporaryDirectory() as scratch:
        session = open_session(Path(scratch))
        try:
            found = _select(session, path, head[-1], region)
        except duckdb.Error as error:
            raise BadInput(f"cannot be read: {str(error).splitlines()[0]}", hint="download it again") from error
        finally:
            session.close()
    rows_found = ((f"{path.name} SKU {sku}", *rest) for sku, *rest in found)
    return _sheet(meta["OfferCode"], meta["Version"], meta["Publication Date"], rows_found)


def _select(session: Any, path: Path, header: Sequence[str], region: str) -> list[tuple[str, ...]]:
    """SKU, instance type, region, price, currency of the rows that are taken."""
    needed = ("SKU", "TermType", "Unit", "PricePerUnit", "Currency", "Instance Type", "Region Code", *WANTED)
    for name in needed:
        if name not in header:
            raise BadInput("has no such column", field=name, hint=SHAPE_HINT)
    columns = ", ".join(f"{string(name)}: 'VARCHAR'" for name in _distinct(header))
    session.execute(
        f"CREATE TEMP TABLE taken AS SELECT SKU, {quoted('Instance Type')} AS instance, {quoted('Region Code')} AS region, "
        f"PricePerUnit AS price, Currency AS currency FROM read_csv({string(str(path))}, columns = {{{columns}}}, "
        f"skip = {len(META) + 1}, header = false, auto_detect = false, delim = ',', quote = '\"', escape = '\"', "
        f"compression = '{'gzip' if _packed(path) else 'none'}', null_padding = false) "
        f"WHERE TermType = 'OnDemand' AND Unit = 'Hrs' AND {gpu_sql(quoted('Instance Type'), 'aws')} AND "
        + " AND ".join(f"{quoted(name)} IN {strings(values)}" for name, (_, values) in WANTED.items())
        + (f" AND {quoted(MARKET[0])} = {string(MARKET[2])}" if MARKET[0] in header else "")
    )
    chosen = _region(region, [row[0] for row in session.execute("SELECT DISTINCT region FROM taken ORDER BY 1").fetchall()])
    found: list[tuple[str, ...]] = session.execute(
        f"SELECT * FROM taken WHERE region = {string(chosen)} ORDER BY instance, price, SKU"
    ).fetchall()
    return found


def _packed(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def _distinct(header: Sequence[str]) -> list[str]:
    """DuckDB knows no case: a column that comes again is numbered."""
    seen: dict[str, int] = defaultdict(int)
    names = []
    for name in header:
        seen[name.casefold()] += 1
        names.append(name if seen[name.casefold()] == 1 else f"{name}~{seen[name.casefold()]}")
    return names


def _json(path: Path, region: str) -> PriceSheet:
    meta: dict[str, str] = {}
    products: dict[str, Mapping[str, str]] = {}
    rows: list[tuple[str, ...]] = []
    with _opened(path) as text:
        stream = JsonStream(text)
        for key in stream.members():
            if key == "products":
                products = _products(stream)
            elif key == "terms":
                rows = list(_terms(stream, products, path.name))
            else:
                value = stream.value()
                meta |= {key: value} if isinstance(value, str) else {}
    for name in ("offerCode", "version", "publicationDate"):
        if name not in meta:
            raise BadInput("is no AWS price list: is missing", field=name, hint=SHAPE_HINT)
    chosen = _region(region, sorted({row[2] for row in rows}))
    return _sheet(meta["offerCode"], meta["version"], meta["publicationDate"], (row for row in rows if row[2] == chosen))


def _products(stream: JsonStream) -> dict[str, Mapping[str, str]]:
    found = {}
    for sku in stream.members():
        about = stream.value().get("attributes", {})
        market = about.get(MARKET[1], MARKET[2])
        if (
            market == MARKET[2]
            and is_gpu_instance("aws", about.get("instanceType", ""))
            and all(about.get(name) in values for name, values in WANTED.values())
        ):
            found[sku] = about
    return found


def _terms(stream: JsonStream, products: Mapping[str, Mapping[str, str]], name: str) -> Iterator[tuple[str, ...]]:
    """Terms stand after the products; those of other kinds are read over, so that a file cut short is noticed."""
    for kind in stream.members():
        for sku in stream.members():
            offers = stream.value()
            if kind != "OnDemand" or sku not in products:
                continue
            about = products[sku]
            for offer in offers.values():
                for rate in offer["priceDimensions"].values():
                    if rate.get("unit") == "Hrs":
                        for currency, price in rate["pricePerUnit"].items():
                            yield f"{name} SKU {sku}", about["instanceType"], about.get("regionCode", ""), price, currency


def _region(asked: str, found: Sequence[str]) -> str:
    if asked and asked not in found:
        shown = ", ".join(found[:8]) or "none with a price of an instance with accelerators"
        raise BadInput("the list has no such region", field="--region", value=asked, hint=f"it has {shown}")
    if not asked and len(found) > 1:
        raise BadInput(f"the list holds {len(found)} regions", field="--region", hint=f"name one: {', '.join(found[:8])} …")
    return asked or (found[0] if found else "")


def _sheet(offer: str, version: str, published: str, rows: Iterable[Sequence[str]]) -> PriceSheet:
    prices: list[InstancePrice] = []
    refused: list[str] = []
    for place, name, region, price, currency in rows:
        try:
            amount = Decimal(price)
        except (DecimalException, TypeError):
            refused.append(f"{place}: {name}: {price!r} is no price")
            continue
        prices.append(InstancePrice(name, region, amount, currency, place.rpartition(" ")[2], place))
    return PriceSheet(offer, version, _instant(version, published), None, tuple(prices), tuple(refused))


def _instant(version: str, published: str = "") -> datetime:
    """A version is named after its instant; where it is not, the publication date says it."""
    try:
        if len(version) == 14 and version.isdigit():
            return datetime.strptime(version, "%Y%m%d%H%M%S").replace(tzinfo=UTC)
        at = datetime.fromisoformat(published)
    except ValueError as error:
        raise BadInput("is no version of a price list", field="Version", value=version or published) from error
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _history(path: Path, region: str) -> list[PriceSheet]:
    """Rows of ``instance_type``, ``usd_per_hour``, ``price_list_version`` and ``note``, tab by tab; lines with # are remarks.

    A price holds until the version its note says it was unchanged through, where a later row has another price; without such a
    note until the next row's version; the last row of an instance has no end. A row without a version is refused.
    """
    if not region:
        raise BadInput("a history names no region", field="--region", hint="name the one it is of, for example us-east-1")
    with _opened(path) as text:
        lines = [(number, line) for number, line in enumerate(text, 1) if line.strip() and not line.startswith("#")]
    reader = csv.DictReader(io.StringIO("".join(line for _, line in lines)), delimiter="\t")
    rows = [(f"{path.name}:{number}", row) for (number, _), row in zip(lines[1:], reader, strict=True)]
    known = [(place, row) for place, row in rows if (row["price_list_version"] or "").isdigit()]
    refused = [
        f"{place}: {row['instance_type']}: names no version of the price list" for place, row in rows if (place, row) not in known
    ]
    by_instance: dict[str, list[tuple[str, Mapping[str, str]]]] = defaultdict(list)
    for place, row in sorted(known, key=lambda item: item[1]["price_list_version"]):
        by_instance[row["instance_type"]].append((place, row))
    spans: dict[tuple[str, datetime | None], list[tuple[str, ...]]] = defaultdict(list)
    for listed in by_instance.values():
        for (place, one), after in zip(listed, [*listed[1:], None], strict=True):
            end = _end(one, after[1] if after else None)
            spans[one["price_list_version"], end].append((place, one["instance_type"], region, one["usd_per_hour"], "USD"))
    sheets = []
    for (version, end), found in spans.items():
        sheets.append(replace(_sheet("AmazonEC2", version, "", found), until=end, is_whole=False))
    return [*sheets[:-1], *(replace(sheet, refused=(*sheet.refused, *refused)) for sheet in sheets[-1:])]


def _end(row: Mapping[str, str], after: Mapping[str, str] | None) -> datetime | None:
    if after is None:
        return None
    note = (row.get("note") or "").partition(";")[0]
    through = note.removeprefix(THROUGH) if note.startswith(THROUGH) else after["price_list_version"]
    return _instant(through)
