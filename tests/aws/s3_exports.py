"""Deliveries in a bucket, laid out as Amazon lays them: legacy reports and Data Exports, create-new and overwrite."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from typing import Any

from bill_lines import csv_bytes, cur_line

MONTH = "20260701-20260801"
LAYOUTS = ("legacy create-new", "legacy overwrite", "export create-new", "export overwrite")


def report(*costs: str, packed: str = "gz") -> bytes:
    text = csv_bytes([cur_line("Usage", {"unblended": cost}) for cost in costs])
    if packed == "gz":
        return gzip.compress(text)
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("cur-1.csv", text)
    return whole.getvalue()


def keys_of(layout: str, assembly: str, names: list[str]) -> tuple[list[str], list[str]]:
    """Where the manifest's copies and the data files of a delivery lie."""
    kind, _, way = layout.partition(" ")
    inner = f"{assembly}/" if way == "create-new" else ""
    if kind == "legacy":
        month = f"bills/cur/{MONTH}/"
        copies = [f"{month}{inner}cur-Manifest.json", f"{month}cur-Manifest.json"] if inner else [f"{month}cur-Manifest.json"]
        return copies, [f"{month}{inner}{name}" for name in names]
    period = "BILLING_PERIOD=2026-07/"
    return [f"bills/cur/metadata/{period}{inner}cur-Manifest.json"], [f"bills/cur/data/{period}{inner}{name}" for name in names]


def manifest_of(layout: str, assembly: str, keys: list[str], bucket: str) -> bytes:
    if layout.startswith("legacy"):
        body: dict[str, Any] = {
            "assemblyId": assembly, "reportName": "cur", "billingPeriod": {"start": "20260701T000000.000Z"}, "reportKeys": keys,
            "compression": "GZIP", "contentType": "text/csv", "bucket": bucket,
        }  # fmt: skip
    else:
        body = {"executionId": assembly, "dataFiles": [f"s3://{bucket}/{key}" for key in keys], "columns": []}
    return json.dumps(body).encode()


def deliver(client: Any, bucket: str, layout: str, assembly: str, files: dict[str, bytes | None]) -> None:
    """Data files first, the manifest last; a file without bytes is named and not there."""
    copies, keys = keys_of(layout, assembly, list(files))
    for key, body in zip(keys, files.values(), strict=True):
        if body is not None:
            client.put_object(Bucket=bucket, Key=key, Body=body)
    for copy in copies:
        client.put_object(Bucket=bucket, Key=copy, Body=manifest_of(layout, assembly, keys, bucket))
