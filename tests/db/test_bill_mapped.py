"""Any bill by a declared mapping: what is not declared right is refused with its place, what does not add up too."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from bill_takes import Takes
from sqlalchemy import Engine

from core.errors import BadInput

pytestmark = pytest.mark.db
MAPPING: dict[str, Any] = {
    "columns": {
        "billed": "Net", "list": "Gross", "billing_period": "Month", "charge_start": "Begin", "account": "Contract",
        "kind": "Type",
        "instance_type": "Machine", "currency": "Cur", "quantity": "Hours used",
    },
    "constants": {"provider": "solora", "family": "gpu"},
    "values": {"kind": {"Rent": "usage", "Storno": "refund"}},
    "tags": {"team": "Cost centre"},
    "utc_offset_hours": 8,
    "sums": [{"equals": "Net", "of": ["Gross", "Discount"]}],
}  # fmt: skip


def line(**more: str) -> dict[str, str]:
    return {
        "Net": "90", "Gross": "100", "Discount": "-10", "Month": "2026-07", "Begin": "2026-07-01 00:00:00", "Contract": "007",
        "Type": "Rent",
        "Machine": "8xH100", "Cur": "CNY", "Hours used": "24", "Cost centre": "a", "Other": "kept", **more,
    }  # fmt: skip


@pytest.fixture
def take(db: Engine, tmp_path: Path) -> Any:
    bills = Takes(db, tmp_path, "mapped")

    def run(rows: list[dict[str, str]], mapping: dict[str, Any] = MAPPING) -> Takes:
        path = tmp_path / "solora.yaml"
        path.write_text(yaml.safe_dump(mapping), encoding="utf-8")
        bills.rows(rows, mapping=path)
        return bills

    return run


def test_a_mapped_bill(take: Any) -> None:
    storno = line(Net="-5.01", Gross="-5.01", Discount="", Type="Storno")
    bills = take([line(), storno, line(Type="New", Net="1", Gross="1", Discount="0")])
    assert bills.by("bucket") == {"gpu": 90, "refund": Decimal("-5.01"), "unknown": 1}
    assert bills.by("billing_period", "day", "account", "provider", "tag:team") == {
        ("2026-07-01", "2026-06-30", "007", "solora", "a"): Decimal("85.99")
    }
    (row,) = bills.charges("provider")
    assert row["currency"] == "CNY"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"Net": "91"}, r"row 2: Net.*not the sum of Gross and Discount.*'91'"),
        ({"Net": "x"}, r"row 2: Net.*'x'"),
        ({"Net": "", "Gross": "", "Discount": ""}, r"row 2: Net.*missing"),
        ({"Begin": "1.7.2026"}, r"row 2: Begin.*'1\.7\.2026'"),
        ({"Cur": ""}, r"row 2: currency.*--currency"),
    ],
)
def test_f7_a_line_that_is_wrong_is_named(take: Any, change: dict[str, str], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        take([line(), line(**change)])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"columns": {"billed": "Netto", "billing_period": "Month"}}, r"Netto.*no such column.*its columns are Net"),
        ({"columns": {"cost": "Net"}}, r"solora\.yaml: cost.*no column of a charge"),
        ({"columns": {"billed": "Net"}}, r"solora\.yaml: billing_period or charge_start.*must be mapped"),
        ({"values": {"kind": {"Rent": "rent"}}}, r"values\.kind\.Rent.*'rent'.*use usage"),
        ({"total": 5}, r"solora\.yaml: total.*not a key"),
    ],
)
def test_a_mapping_that_is_wrong_is_named(take: Any, change: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        take([line()], {**MAPPING, **change})


def test_without_a_mapping_one_is_asked_for(db: Engine, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="--mapping"):
        Takes(db, tmp_path, "mapped").rows([line()])
