"""A bill's CSV into lines: plain, gzip, ZIP; every cell as written; what does not fit is named by row."""

from __future__ import annotations

import csv
import gzip
import io
import random
import tempfile
import zipfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import BadInput
from ingest.billing.csv_lines import BLOCK_BYTES, csv_columns, write_csv


def read(path: Path, body: bytes) -> list[dict[str, str | None]]:
    path.write_bytes(body)
    names, delimiter = csv_columns(path)
    target = path.with_suffix(".parquet")
    rows = write_csv(path, target, names, delimiter, row_group=2)
    found: list[dict[str, str | None]] = pq.read_table(target).to_pylist()
    assert len(found) == rows
    return found


def zipped(**files: bytes) -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in files.items():
            archive.writestr(f"{name}.csv", body)
    return whole.getvalue()


PLAIN = b'a,b,c\r\n1,"x ""y"",\nz",3\r\n,"",- \r\n'
MANY = b"a,b,c\n" + b"".join(b"%d,%d,%d\n" % (n, random.Random(n).getrandbits(60), n) for n in range(20_000))


@pytest.mark.parametrize("packed", [PLAIN, gzip.compress(PLAIN), zipped(report=PLAIN)], ids=["plain", "gzip", "zip"])
def test_cells_are_text_as_written_and_empty_ones_null(tmp_path: Path, packed: bytes) -> None:
    assert read(tmp_path / "x", packed) == [{"a": "1", "b": 'x "y",\nz', "c": "3"}, {"a": None, "b": None, "c": "- "}]


CELL = st.text(st.sampled_from('ab,;"\n\r é-'), max_size=6)


@given(st.lists(st.tuples(CELL, CELL), min_size=1, max_size=8), st.booleans())
def test_what_a_csv_writer_writes_is_read_back(rows: list[tuple[str, str]], packed: bool) -> None:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows([("one", "two"), *rows])
    body = text.getvalue().encode()
    with tempfile.TemporaryDirectory() as folder:
        found = read(Path(folder) / "x", gzip.compress(body) if packed else body)
    assert [(row["one"] or "", row["two"] or "") for row in found] == rows


def test_two_gzip_members_are_one_file(tmp_path: Path) -> None:
    assert len(read(tmp_path / "x", gzip.compress(b"a,b\n1,2\n") + gzip.compress(b"3,4\n"))) == 2


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (b"\xef\xbb\xbfa,b,a\n1,2,3\n", ["a", "b", "a~again2"]),
        (b"a;b\n1;2\n", ["a", "b"]),
        (b"a,b,c,d\n1,2,3\n4,5,6\n", ["a", "b", "c"]),
        (b'"a\nb",c\n1,2\n', ["a\nb", "c"]),
        (b"a,b\n", []),
    ],
    ids=["mark and a header twice", "semicolons", "headers without cells", "a header of two lines", "no row"],
)
def test_headers(tmp_path: Path, body: bytes, names: list[str]) -> None:
    assert list(next(iter(read(tmp_path / "x", body)), {})) == names


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"a,b\n1,2\n3\n4,5\n", r"row 2 has 1 cells and its header 2.*'3'"),
        (MANY + b"1,2\n", r"row 20,001 has 2 cells and its header 3"),
        (b'a,b\n1,2\n1,"2\n1,2\n', "cut short: its last cell has no closing quotation mark"),
        (gzip.compress(b'a,b\n1,2\n1,"2\n1,2\n'), "cut short: its last cell has no closing quotation mark"),
        (b'a,b\n1,2\n1,"2', "cut short: its last cell has no closing quotation mark"),
        (b"a,b\n1," + b"x" * (4 * BLOCK_BYTES) + b"\n1,2\n", "field larger than field limit"),
        (MANY + b"1,2," + b"x" * (4 * BLOCK_BYTES) + b"\n1,2,3\n", "a line of more than 2 MB"),
        ("a,b\n1,2\n".encode("utf-16"), "is UTF-16"),
        (gzip.compress(MANY)[:-20_000], "is cut short"),
        (gzip.compress(MANY)[:-4], "is cut short"),
        (zipped(r=MANY)[:-20_000], "ZIP that is damaged or cut short"),
        (zipped(r=MANY)[:90_000] + b"\0" + zipped(r=MANY)[90_001:], "ZIP that is damaged or cut short"),
        (zipped(r=PLAIN, s=PLAIN), r"ZIP of 2 files \(r\.csv, s\.csv\).*unpack it first"),
        (zipped(), r"ZIP of 0 files|no header|damaged"),
        (b"", "has no header"),
    ],
)
def test_what_is_refused(tmp_path: Path, body: bytes, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        read(tmp_path / "x", body)
