"""A data file's CSV into lines, a block at a time: plain, gzip, or the one file of a ZIP. Every cell stays text.

Arrow reads it: of 106 columns, most of them empty, it takes half the time DuckDB's reader does.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from core.errors import BadInput

HEADER_BYTES = 1 << 20
BLOCK_BYTES = 2 << 20
"""Read at a time. No line may be longer: a quote that is never closed would else swallow the file."""
DELIMITERS = ",;\t|"
AGAIN = "~again"
"""Stands before the number of a header that occurs again."""
GZIP, ZIP = b"\x1f\x8b", b"PK"
_FOREIGN = re.compile(rb"[\x80-\xff]+")
CUT_HINT = "the delivery is refused, the former one stays; deliver it again"


def csv_columns(path: Path) -> tuple[list[str], str]:
    """The columns of a CSV file, none twice (a header that occurs again is numbered), and its delimiter. Raises BadInput."""
    headers, delimiter = csv_header(path)
    seen: dict[str, int] = {}
    names = []
    for header in headers:
        seen[header] = seen.get(header, 0) + 1
        names.append(header if seen[header] == 1 else f"{header}{AGAIN}{seen[header]}")
    return names, delimiter


def write_csv(path: Path, target: Path, names: Sequence[str], delimiter: str, *, row_group: int) -> int:
    """The rows of ``path`` as Parquet at ``target``, its columns called ``names``; how many they are. An empty cell is null.

    Raises BadInput naming the row that does not fit the header, and when the file is cut short or no text in UTF-8.
    """
    odd: list[Any] = []
    places = [f"c{number}" for number in range(len(names))]
    writer: pq.ParquetWriter | None = None
    rows, last = 0, ""
    try:
        with open_text(path, packed=False) as file:
            schema = pa.schema([(name, pa.string()) for name in names])
            writer = pq.ParquetWriter(target, schema, compression="zstd", compression_level=1, store_schema=False)
            with _reader(file, path, places, delimiter, odd) as reader:
                for table in _grouped(reader, row_group):
                    writer.write_table(table.rename_columns(list(names)), row_group_size=row_group)
                    rows += table.num_rows
                    last = table.column(len(names) - 1)[-1].as_py()
    except pa.ArrowInvalid as error:
        if "UTF8" in str(error):
            raise _not_utf8(path) from error
        raise _unfit(error, _first_odd(path, places, delimiter) if odd else None, len(names)) from error
    except OSError as error:
        if "runcated" not in str(error):
            raise
        raise BadInput("is cut short", hint=CUT_HINT) from error
    finally:
        if writer is not None:
            writer.close()
        _give_back_memory()
    if _is_open(path, last or ""):
        raise BadInput("is cut short: its last cell has no closing quotation mark", hint=CUT_HINT)
    return rows


def _is_open(path: Path, last: str) -> bool:
    """Whether the file ends inside a quoted cell (its last one, as read): Arrow takes the end of the file for the cell's.

    A packed file proves its own length, so only a cell that swallowed the file's last line end is looked at there."""
    if not last or (packing(path) and not last.endswith("\n")):
        return False
    tail = last.replace('"', '""').encode()
    return _tail(path, len(tail) + 1) == b'"' + tail


def _tail(path: Path, size: int) -> bytes:
    """The last bytes of the text."""
    if not packing(path):
        with path.open("rb") as file:
            file.seek(-min(size, path.stat().st_size), io.SEEK_END)
            return file.read()
    end = b""
    with open_text(path) as text:
        while chunk := text.read(BLOCK_BYTES):
            end = (end + chunk)[-size:]
    return end


def _give_back_memory() -> None:
    """What Arrow holds in reserve is DuckDB's to use next: both together must stay within the import's bound."""
    pool = pa.default_memory_pool()
    if pool.backend_name == "jemalloc":
        pa.jemalloc_set_decay_ms(0)
    pool.release_unused()


def _reader(file: IO[bytes], path: Path, places: list[str], delimiter: str, odd: list[Any], *, threads: bool = True) -> Any:
    def note(row: Any) -> str:
        odd.append(row)
        return "error"

    stream = pa.PythonFile(file, mode="r")
    if packing(path) == "gzip":
        stream = pa.CompressedInputStream(stream, "gzip")
    return pyarrow.csv.open_csv(
        stream,
        # Positions, not headers: a header may occur twice, or be longer than its rows.
        read_options=pyarrow.csv.ReadOptions(
            column_names=places, skip_rows_after_names=1, block_size=BLOCK_BYTES, use_threads=threads
        ),
        parse_options=pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=note),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(places, pa.string()), strings_can_be_null=True, null_values=[""]
        ),
    )


def _grouped(reader: Any, rows: int) -> Iterator[Any]:
    """Tables of about ``rows`` rows: a block has fewer, and each table becomes a row group of its own."""
    held: list[Any] = []
    for batch in reader:
        held.append(batch)
        if sum(one.num_rows for one in held) >= rows:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def _first_odd(path: Path, places: list[str], delimiter: str) -> Any:
    """The first row that does not fit: rows are numbered only when one thread reads them, so it is looked for apart."""
    odd: list[Any] = []
    with (
        open_text(path, packed=False) as file,
        contextlib.suppress(pa.ArrowInvalid),
        _reader(file, path, places, delimiter, odd, threads=False) as reader,
    ):
        for _ in reader:
            pass
    return odd[0]


def _unfit(error: Exception, odd: Any, headers: int) -> BadInput:
    said = str(error)
    if odd is not None:
        hint = f"the row reads {odd.text[:80]!r}; {CUT_HINT}"
        return BadInput(f"row {odd.number - 1:,} has {odd.actual_columns:,} cells and its header {headers:,}", hint=hint)
    if "straddling" in said:
        hint = f"is a quotation mark never closed? {CUT_HINT}"
        return BadInput(f"has a line of more than {BLOCK_BYTES >> 20} MB", hint=hint)
    return BadInput(f"cannot be read: {said.splitlines()[0]}", hint=CUT_HINT)


def _not_utf8(path: Path) -> BadInput:
    """Which line is no UTF-8, and what the file seems to be written in."""
    with open_text(path) as text:
        for number, line in enumerate(text, 1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                likely = likely_encoding(line)
                hint = f"it looks like {likely}: write it anew as UTF-8 (iconv -f {likely} -t UTF-8 FILE)"
                return BadInput(f"is not written in UTF-8: line {number:,} has the byte 0x{line[error.start]:02x}", hint=hint)
    return BadInput("is not written in UTF-8", hint="write it anew as UTF-8")


def likely_encoding(line: bytes) -> str:
    """GB18030 where all that is not ASCII comes in pairs, as Chinese does; else what Western spreadsheets write."""
    runs = _FOREIGN.findall(line)
    return "GB18030" if all(len(run) % 2 == 0 for run in runs) else "WINDOWS-1252"


def csv_header(path: Path) -> tuple[list[str], str]:
    """The header of a CSV file, packed or not, with or without a byte order mark, and its delimiter.

    Names at its end that no row has a cell for are left out. Raises BadInput."""
    with open_text(path) as opened:
        head: bytes = opened.read(HEADER_BYTES)
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise BadInput("is UTF-16", hint="deliver it as UTF-8")
    try:
        text = head.decode("utf-8-sig", errors="ignore" if len(head) == HEADER_BYTES else "strict")
    except UnicodeDecodeError as error:
        raise BadInput("is cut short", hint=CUT_HINT) if "unexpected end" in error.reason else _not_utf8(path) from error
    first = text.split("\n", 1)[0]
    delimiter = max(DELIMITERS, key=first.count)
    rows = csv.reader(io.StringIO(text), delimiter=delimiter)
    headers = next(rows, [])
    if not [header for header in headers if header.strip()]:
        raise BadInput("has no header", hint="the first line must name the columns")
    try:
        cells = _cells(rows, len(headers))
    except csv.Error as error:
        raise BadInput(f"cannot be read: {error}", hint=f"is a quotation mark never closed? {CUT_HINT}") from error
    return [header.strip() for header in headers[:cells]], delimiter


def _cells(rows: Iterator[list[str]], headers: int) -> int:
    """How many cells a row has: fewer than the header only if the first two rows agree (a writer's way, not a cut line)."""
    first, second = len(next(rows, [])), len(next(rows, []))
    return first if 0 < first == second < headers else headers


def packing(path: Path) -> str:
    """How a file is packed: 'gzip', 'zip', or '' for not at all; by its first bytes, whatever its name."""
    with path.open("rb") as file:
        head = file.read(2)
    return "gzip" if head == GZIP else "zip" if head == ZIP else ""


@contextmanager
def open_text(path: Path, *, packed: bool = True) -> Iterator[IO[bytes]]:
    """The bytes of a text file, unpacked as they are read. ``packed`` False leaves gzip packed.

    Raises BadInput for a ZIP that is damaged or cut short (as soon as that shows), or holds anything but one file."""
    kind = packing(path)
    if kind == "zip":
        with _zip_member(path) as member:
            yield member
    elif kind == "gzip" and packed:
        try:
            with gzip.open(path) as unpacked:
                yield cast("IO[bytes]", unpacked)
        except EOFError as error:
            raise BadInput("is cut short", hint=CUT_HINT) from error
    else:
        with path.open("rb") as file:
            yield file


@contextmanager
def _zip_member(path: Path) -> Iterator[IO[bytes]]:
    try:
        with zipfile.ZipFile(path) as archive:
            names = [info.filename for info in archive.infolist() if not info.is_dir()]
            if len(names) != 1:
                shown = ", ".join(names[:3]) or "none"
                raise BadInput(
                    f"is a ZIP of {len(names):,} files ({shown})", hint="a report's ZIP holds one CSV file: unpack it first"
                )
            with archive.open(names[0]) as member:
                yield member
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise BadInput(f"is a ZIP that is damaged or cut short ({error})", hint=CUT_HINT) from error
