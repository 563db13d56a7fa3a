"""What a bill's import takes: an AWS cost and usage report (gzip CSV, generated) into DATA/bills and the database.

Run: python -m bench.bill_import [--quick]. The peer is DuckDB reading the same file, every column as text; a sum of one column
stands beside it. The import runs in a process of its own, so that the peak memory is its own; start-up and database are apart.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import duckdb

from bench.figures import Figure, Row
from bench.scratch import scratch
from ingest.billing.adapter import BillOptions
from ingest.billing.delivery import Accept
from ingest.billing.importer import BillImport
from ingest.billing.layouts import find_deliveries
from ingest.billing.registry import ADAPTERS
from ingest.billing.stores import LocalFiles
from ingest.billing.switch import ImportSettings
from models.database import open_engine, start_embedded, upgrade

LINES, QUICK_LINES = 1_000_000, 50_000
MANY_LINES = 5_000_000
MEMORY_BAR_MB = 512.0
EMPTY_COLUMNS = 70
"""Product, pricing and reservation columns that a report names and most lines leave empty."""
_HOURS = 720


def write_report(path: Path, lines: int) -> None:
    """A month of ``lines`` hourly lines: GPU and other instances, storage, a savings plan, tags; exact costs of 10 decimals."""
    kinds = ("Usage", "Usage", "Usage", "SavingsPlanCoveredUsage", "SavingsPlanNegation", "Usage", "DiscountedUsage", "Tax")
    types = ("p4d.24xlarge", "g5.12xlarge", "m5.xlarge", "p5.48xlarge", "", "c6i.4xlarge", "r6g.2xlarge", "")
    pick = ", ".join(f"'{kind}'" for kind in kinds)
    machine = ", ".join(f"'{name}'" for name in types)
    resources = max(1, lines // _HOURS)
    cells = {
        "identity/LineItemId": "md5(i::VARCHAR)",
        "identity/TimeInterval": "strftime(began, '%Y-%m-%dT%H:00:00Z') || '/' || strftime(began, '%Y-%m-%dT%H:59:59Z')",
        "bill/InvoiceId": "''",
        "bill/BillingEntity": "'AWS'",
        "bill/BillType": "'Anniversary'",
        "bill/PayerAccountId": "'012345678901'",
        "bill/BillingPeriodStartDate": "'2026-11-01T00:00:00Z'",
        "bill/BillingPeriodEndDate": "'2026-12-01T00:00:00Z'",
        "lineItem/UsageAccountId": "lpad((r % 20)::VARCHAR, 12, '0')",
        "lineItem/LineItemType": f"list_extract([{pick}], (r % 8 + 1)::INT)",
        "lineItem/UsageStartDate": "strftime(began, '%Y-%m-%dT%H:00:00Z')",
        "lineItem/UsageEndDate": "strftime(began + INTERVAL 1 HOUR, '%Y-%m-%dT%H:00:00Z')",
        "lineItem/ProductCode": "'AmazonEC2'",
        "lineItem/UsageType": f"'BoxUsage:' || list_extract([{machine}], (r % 8 + 1)::INT)",
        "lineItem/Operation": "'RunInstances'",
        "lineItem/AvailabilityZone": "'us-east-1a'",
        "lineItem/ResourceId": "'i-' || lpad(r::VARCHAR, 17, '0')",
        "lineItem/UsageAmount": "'1.0000000000'",
        "lineItem/CurrencyCode": "'USD'",
        "lineItem/UnblendedRate": "'0.1920000000'",
        "lineItem/UnblendedCost": "((i * 7919) % 100000000000)::DECIMAL(38, 0) * 0.0000000001::DECIMAL(11, 10)",
        "lineItem/BlendedCost": "'0.1920000000'",
        "lineItem/LineItemDescription": "'$0.192 per On Demand Linux instance hour of number ' || r::VARCHAR",
        "lineItem/LegalEntity": "'Amazon Web Services, Inc.'",
        "product/instanceType": f"list_extract([{machine}], (r % 8 + 1)::INT)",
        "product/regionCode": "'us-east-1'",
        "product/sku": "'SKU' || (r % 97)::VARCHAR",
        "pricing/publicOnDemandCost": "'0.2300000000'",
        "pricing/term": "'OnDemand'",
        "pricing/unit": "'Hrs'",
        "reservation/EffectiveCost": "CASE WHEN r % 8 = 6 THEN '0.1200000000' ELSE '' END",
        "savingsPlan/SavingsPlanEffectiveCost": "CASE WHEN r % 8 = 3 THEN '0.1400000000' ELSE '' END",
        "savingsPlan/TotalCommitmentToDate": "''",
        "savingsPlan/UsedCommitment": "''",
        "resourceTags/user:team": "'team-' || (r % 40)::VARCHAR",
        "resourceTags/user:app": "'app-' || (r % 200)::VARCHAR",
        **{f"product/attribute{n:02d}": "''" for n in range(EMPTY_COLUMNS)},
    }
    named = ", ".join(f'{sql} AS "{name}"' for name, sql in cells.items())
    began = f"TIMESTAMP '2026-11-01' + to_hours((i // {resources})::INT % {_HOURS})"
    source = f"(SELECT i, i % {resources} AS r, {began} AS began FROM range({lines}) t(i))"
    with duckdb.connect() as session:
        session.execute(f"COPY (SELECT {named} FROM {source}) TO '{path}' (FORMAT csv, HEADER, COMPRESSION gzip)")


def import_report(path: Path, data_dir: Path, url: str) -> dict[str, float]:
    """One import in this process: seconds, and its peak memory."""
    engine = open_engine(url)
    settings = ImportSettings(
        engine, data_dir, "aws-cur", ADAPTERS["aws-cur"], BillOptions(), Accept(), datetime(2026, 12, 1, tzinfo=UTC)
    )
    store = LocalFiles(path)
    started = time.perf_counter()
    done = BillImport(settings).run(store, find_deliveries(store, needs_manifest=False)[0])
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "peak_mb": _peak_kb() / 1024, "rows": done[0].rows}


def _peak_kb() -> int:
    """The peak of this program alone: ``ru_maxrss`` would hold that of the process it was started from as well."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM:")).split()[1])


def peer_seconds(path: Path, *, whole: bool) -> float:
    """DuckDB on the same file: one column summed, or every column read into a table."""
    with duckdb.connect(config={"threads": 2}) as session:
        source = f"read_csv('{path}', all_varchar = true)"
        started = time.perf_counter()
        if whole:
            session.execute(f"CREATE TABLE lines AS SELECT * FROM {source}")
        else:
            session.execute(f'SELECT sum("lineItem/UnblendedCost"::DECIMAL(38, 10)) FROM {source}').fetchall()
        return time.perf_counter() - started


def measure(*, quick: bool) -> Row:
    lines = QUICK_LINES if quick else LINES
    with scratch() as folder:
        url = start_embedded(folder / "pg")
        upgrade(url)
        report = folder / "report.csv.gz"
        write_report(report, lines)
        read_s = peer_seconds(report, whole=False)
        whole_s = peer_seconds(report, whole=True)
        ours = many = _apart(report, folder / "data", url)
        if not quick:
            write_report(report, MANY_LINES)
            many = _apart(report, folder / "more", url)
    return Row(
        name="bills",
        what="AWS cost and usage report into bills and the database",
        load=f"{lines:,} lines, gzip CSV, 106 columns; memory at {int(many['rows']):,} lines",
        figures=(
            Figure("import", ours["seconds"], "s", "less", floor=3 * whole_s, goal=1.5 * whole_s, peer=whole_s,
                   peer_is="DuckDB reads every column into a table"),
            Figure("import against one column", ours["seconds"], "s", "less", peer=read_s, peer_is="DuckDB sums one column"),
            Figure("peak memory", many["peak_mb"], "MB", "less", floor=MEMORY_BAR_MB, goal=MEMORY_BAR_MB),
        ),
        profile=f"{lines / ours['seconds']:,.0f} lines/s; {many['rows'] / many['seconds']:,.0f} lines/s at the larger size",
        detail={"import": ours, "larger": many},
    )  # fmt: skip


def _apart(report: Path, data_dir: Path, url: str) -> dict[str, float]:
    code = "import sys, json; from pathlib import Path; from bench.bill_import import import_report; "
    code += "print(json.dumps(import_report(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(report), str(data_dir), url], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true")
    row = measure(quick=arguments.parse_args().quick)
    print(json.dumps(row.as_json(), indent=1))


if __name__ == "__main__":
    main()
