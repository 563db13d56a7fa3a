"""FOCUS lines of a made-up issuer, and the real command on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import Path

import pytest
from bill_lines import csv_bytes
from cli_command import Answer, Command


def focus_line(**more: str) -> dict[str, str]:
    """Ten dollars of July, used on one day."""
    return {
        "BilledCost": "10", "EffectiveCost": "10", "ListCost": "12", "BillingCurrency": "USD", "ProviderName": "P",
        "BillingAccountId": "1", "BillingPeriodStart": "2026-07-01T00:00:00Z", "BillingPeriodEnd": "2026-08-01T00:00:00Z",
        "ChargePeriodStart": "2026-07-03T00:00:00Z", "ChargePeriodEnd": "2026-07-04T00:00:00Z", "ChargeCategory": "Usage",
        "ServiceName": "S", **more,
    }  # fmt: skip


class FocusCommand:
    """Imports lines and asks, as a person does."""

    def __init__(self, run: Command, folder: Path) -> None:
        self.run, self.folder = run, folder

    def take(self, rows: Iterable[Mapping[str, str]], *words: str, name: str = "focus.csv") -> Answer:
        return self.take_bytes(csv_bytes(rows), *words, name=name)

    def take_bytes(self, body: bytes, *words: str, name: str = "focus.csv") -> Answer:
        file = self.folder / name
        file.write_bytes(body)
        return self.run("ingest", "bill", str(file), "--format", "focus", *words)

    def refusal(self, rows: Iterable[Mapping[str, str]], *words: str) -> str:
        """Why the only delivery of these lines was refused."""
        code, said, _ = self.take(rows, *words)
        assert (code, said["imported"]) == (2, [])
        return str(said["refused"][0]["reason"])

    def notes(self, rows: Iterable[Mapping[str, str]], *words: str) -> list[str]:
        code, said, _ = self.take(rows, *words)
        assert (code, said["refused"]) == (0, [])
        return [str(note) for bill in said["imported"] for note in bill["notes"]]

    def charged(self, *words: str) -> Decimal:
        _, rows, _ = self.run("show", "charges", *words)
        return sum((Decimal(row["billed_cost"]) for row in rows), Decimal(0))

    def reconciled(self, *words: str) -> dict[str, Decimal]:
        """Billed total by billing period (by usage: month)."""
        code, rows, error = self.run("reconcile", *words)
        assert (code, error) == (0, "")
        return {row["billing_period"]: Decimal(row["billed_cost"]) for row in rows if not row["parent"]}


@pytest.fixture
def focus(command: Command, tmp_path: Path) -> FocusCommand:
    def run(*words: str, as_json: bool = True) -> Answer:
        code, shown, error = command(*words, as_json=as_json)
        return code, shown if as_json else " ".join(f"{shown} {error}".split()), error

    return FocusCommand(run, tmp_path)
