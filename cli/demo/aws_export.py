"""A generated delivery as an export folder: gzip CSV files and their manifest, as AWS lays them out (create-new)."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from cli.demo.aws_lines import Spelling, headers, written
from cli.demo.aws_month import Account, Delivery
from core.windows import month_on

REPORT = "generated-aws-month"
FILES = 2
"""A delivery is cut into so many files."""


def write_delivery(root: Path, account: Account, delivery: Delivery, spelling: Spelling = "legacy") -> Path:
    """Write the delivery under ``root`` and return the export's folder; former deliveries in it stay, as in a bucket."""
    rows = written(account.lines(delivery), delivery.period, delivery.invoice, spelling)
    return _legacy(root, delivery, rows) if spelling == "legacy" else _data_export(root, delivery, rows)


def _legacy(root: Path, delivery: Delivery, rows: Sequence[Mapping[str, str]]) -> Path:
    first, after = delivery.period, month_on(delivery.period, 1)
    month, assembly = f"{first:%Y%m%d}-{after:%Y%m%d}", f"generated-assembly-{delivery.number:02d}"
    folder = root / REPORT / month
    names = _parts(folder / assembly, rows)
    manifest = {
        "assemblyId": assembly,
        "reportName": REPORT,
        "x_generated": True,
        "billingPeriod": {"start": f"{first:%Y%m%d}T000000.000Z", "end": f"{after:%Y%m%d}T000000.000Z"},
        "compression": "GZIP",
        "contentType": "text/csv",
        "reportKeys": [f"bills/{REPORT}/{month}/{assembly}/{name}" for name in names],
    }
    for place in (folder / assembly, folder):
        (place / f"{REPORT}-Manifest.json").write_text(json.dumps(manifest, indent=1))
    return root / REPORT


def _data_export(root: Path, delivery: Delivery, rows: Sequence[Mapping[str, str]]) -> Path:
    month, execution = f"BILLING_PERIOD={delivery.period:%Y-%m}", f"generated-execution-{delivery.number:02d}"
    export = root / REPORT
    names = _parts(export / "data" / month / execution, rows)
    manifest = {
        "executionId": execution,
        "x_generated": True,
        "columns": [{"name": name, "type": "string"} for name in headers(rows)],
        "dataFiles": [f"s3://generated/bills/{REPORT}/data/{month}/{execution}/{name}" for name in names],
    }
    for place in (export / "metadata" / month / execution, export / "metadata" / month):
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{REPORT}-Manifest.json").write_text(json.dumps(manifest, indent=1))
    return export


def _parts(folder: Path, rows: Sequence[Mapping[str, str]]) -> list[str]:
    """The rows cut into files; returns their names."""
    folder.mkdir(parents=True, exist_ok=True)
    names, size = headers(rows), -(-len(rows) // FILES)
    written_names = []
    for number in range(FILES):
        text = io.StringIO()
        writer = csv.DictWriter(text, names, restval="")
        writer.writeheader()
        writer.writerows(rows[number * size : (number + 1) * size])
        name = f"{REPORT}-{number + 1:05d}.csv.gz"
        (folder / name).write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))
        written_names.append(name)
    return written_names
