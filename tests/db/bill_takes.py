"""One data folder and database into which tests of bill formats import files, each an hour after the former."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from bill_lines import csv_bytes
from sqlalchemy import Engine

from ingest.billing.adapter import BillOptions
from ingest.billing.delivery import Accept
from ingest.billing.importer import BillImport
from ingest.billing.layouts import find_deliveries
from ingest.billing.registry import ADAPTERS
from ingest.billing.stores import LocalFiles
from ingest.billing.switch import ImportedBill, ImportSettings
from models.billing_repo import charges_by


class Takes:
    def __init__(self, db: Engine, folder: Path, format: str) -> None:
        self.db, self.folder, self.format = db, folder, format
        self.now = datetime(2026, 8, 1, tzinfo=UTC)

    def path(
        self, path: Path, *, accept: Accept | None = None, needs_manifest: bool = False, **options: Any
    ) -> list[ImportedBill]:
        self.now += timedelta(hours=1)
        adapter = ADAPTERS[self.format]
        job = BillImport(
            ImportSettings(
                self.db, self.folder / "data", self.format, adapter, BillOptions(**options), accept or Accept(), self.now
            )
        )
        store = LocalFiles(path)
        return [bill for found in find_deliveries(store, needs_manifest=needs_manifest) for bill in job.run(store, found)]

    def rows(self, rows: Iterable[Mapping[str, str]], name: str = "bill.csv", **options: Any) -> list[ImportedBill]:
        file = self.folder / name
        file.write_bytes(csv_bytes(rows))
        return self.path(file, **{"export": "main", **options})

    def documents(self, documents: Iterable[Any], name: str = "bill.jsonl", **options: Any) -> list[ImportedBill]:
        file = self.folder / name
        file.write_text("\n".join(json.dumps(document, ensure_ascii=False) for document in documents), encoding="utf-8")
        return self.path(file, **{"export": "main", **options})

    def by(self, *keys: str, **more: Any) -> dict[Any, Decimal]:
        """Billed cost by the keys' values (one key: the value itself)."""
        found = self.charges(*keys, **more)
        return {_key(row, keys): row["billed_cost"] for row in found}

    def charges(self, *keys: str, **more: Any) -> list[dict[str, Any]]:
        with self.db.connect() as connection:
            return charges_by(connection, keys, **more)


def _key(row: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    values = tuple(str(row[key]) for key in keys) or (row["currency"],)
    return values[0] if len(values) == 1 else values
