"""The FinOps Foundation's own validator on our rows. Its exit code is 0 whatever fails: the counts it prints are read."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from focus_samples import sample_rows

from core.focus_rows import CRITERIA
from reports.focus_files import ParquetFile

pytestmark = pytest.mark.focus_validator
ENVIRONMENT = Path(__file__).parents[2] / ".local" / "focus-validator-venv"
COUNTS = re.compile(r"Total: (\d+) \| Pass: (\d+) \| Fail: (\d+) \| Skipped: (\d+)")
FAILED = re.compile(r"^- ([A-Za-z]+-[A-Z]-\d{3}-[A-Z]): ", re.MULTILINE)
ONE_OF_TWO = {"InvoiceId-C-004-C", "InvoiceId-C-005-C"}
"""The validator demands of every row that InvoiceId be null, and that it not be null; the OR above the two passes."""


@pytest.fixture(scope="session")
def validator() -> Path:
    """The validator's command, built by ``make focus-validator-env``."""
    command = ENVIRONMENT / "bin" / "focus-validator"
    if not command.exists():
        pytest.skip("the FOCUS validator is absent: `make focus-validator-env` (it needs a Python 3.12)")
    return command


def validate(command: Path, file: Path, *criteria: str) -> tuple[tuple[int, ...], set[str]]:
    """(total, passed, failed, skipped), and the rules that failed."""
    asked = ["--applicability-criteria", ",".join(criteria)] if criteria else []
    # It opens a list of currencies by a path relative to the folder it is installed in.
    (folder,) = ENVIRONMENT.glob("lib/python3.12/site-packages")
    words = ["--block-download", "--data-file", str(file), "--data-format", "parquet", "--validate-version", "1.2", *asked]
    done = subprocess.run([command, *words], cwd=folder, capture_output=True, text=True, check=False)
    found = COUNTS.search(done.stdout)
    assert found is not None, done.stdout[-2000:] + done.stderr[-2000:]
    return tuple(map(int, found.groups())), set(FAILED.findall(done.stdout))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rows.parquet"
    with ParquetFile(path) as written:
        for row in sample_rows():
            written.write(row)
    return path


def test_with_the_criteria_that_hold_only_the_miswritten_rule_fails(validator: Path, file: Path) -> None:
    counts, failed = validate(validator, file, *CRITERIA)
    assert (counts, failed) == ((578, 198, 1, 379), {"InvoiceId-C-005-C"})


def test_without_criteria_too(validator: Path, file: Path) -> None:
    counts, failed = validate(validator, file)
    assert (counts, failed) == ((578, 136, 1, 441), {"InvoiceId-C-005-C"})


def test_under_a_final_invoice_its_sibling_fails(validator: Path, tmp_path: Path) -> None:
    path = tmp_path / "final.parquet"
    with ParquetFile(path) as written:
        for row in sample_rows():
            written.write({**row, "InvoiceId": "showback-2026-06"})
    counts, failed = validate(validator, path, *CRITERIA)
    assert (counts, failed) == ((578, 198, 1, 379), {"InvoiceId-C-004-C"})


def test_it_reads_a_broken_file_as_broken(validator: Path, tmp_path: Path) -> None:
    path = tmp_path / "broken.parquet"
    with ParquetFile(path) as written:
        for row in sample_rows():
            written.write({**row, "ChargeCategory": "Used"})
    _, failed = validate(validator, path, *CRITERIA)
    assert failed - ONE_OF_TWO >= {"ChargeCategory-C-003-M"}
