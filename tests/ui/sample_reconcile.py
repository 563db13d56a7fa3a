"""Answers of ``GET /v1/reconcile``, put through the API's own schema: July, generated and final, and August, begun."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from sample_answers import Kind

from api.schemas.reconcile import ReconcileOut
from core.bill_facts import BillFacts, Costs, LedgerMoney, MachineMoney
from core.bill_reconcile import rows, waterfall

PERIODS = ["2026-07", "2026-08"]


def _facts(view: str, period: str, *, whole_tenants: bool) -> BillFacts:
    """A plan with an unused part, three tenants, a machine nobody knows, rounding far below a cent."""
    d = Decimal
    buckets = {
        "gpu": Costs(d("16000"), d("12800")), "other_compute": Costs(d("1428.48"), d("1428.48")),
        "non_gpu": Costs(d("3484.38167"), d("3484.38167")), "unused_commitment": Costs(d(0), d("1200")),
        "commitment_fee": Costs(d("12000"), d(0)), "commitment_negation": Costs(d("-14000"), d(0)),
        "credit": Costs(d("-250"), d("-250")), "tax": Costs(d("1281.13"), d("1281.13")),
        "unknown": Costs(d("0.37"), d("0.37")),
    }  # fmt: skip
    whole = sum(buckets.values(), Costs())
    held, tiny = d(11000), d("0.0000000000023")
    capacity = held - 500
    return BillFacts(
        view="usage" if view == "usage" else "invoice",
        own=period,
        buckets=buckets,
        months={period: whole},
        joined={"gpu": Costs(d("15000"), d(11800))},
        unmatched={("gpu", "no machine"): Costs(d(1000), d(1000))} if view == "invoice" else None,
        machines=MachineMoney(held, 800 - tiny, d(0), tiny),
        ledger=LedgerMoney(
            capacity,
            open={"not closed yet": d(500)},
            lines={"served": capacity - d(4000), "idle": d(4000)},
            tenants={
                "acme/search": capacity - d(3000),
                "acme/code": d(2000),
                **({"(no tenant)": d(1000)} if whole_tenants else {}),
            },
        ),
    )


def reconciliations(params: Mapping[str, str], kind: Kind, now: datetime) -> dict[str, Any]:
    """``partial`` has a difference without a name, ``empty`` no bill at all."""
    period = params.get("period", PERIODS[-1])
    view = params.get("view", "invoice")
    steps = waterfall(_facts(view, period, whole_tenants=kind != "partial"))
    shown = [
        {
            "step": r.step, "bucket": r.bucket, "parent": r.parent, "billed_cost": r.billed, "effective_cost": r.effective,
            "hint": r.hint, "is_open": r.is_open, "is_difference": r.is_difference,
        }
        for r in rows(steps)
    ]  # fmt: skip
    final = period == PERIODS[0]
    delivery = {
        "source": "aws", "export": "generated-aws-month", "billing_period": f"{period}-01", "version": 3 if final else 1,
        "is_final": final, "invoice_ids": ["GENERATED-2026-07"] if final else [], "received_at": now - timedelta(hours=5),
    }  # fmt: skip
    one = {
        "billing_period": f"{period}-01", "currency": "USD", "view": view, "state": "final" if final else "provisional",
        "ledger_states": {"final" if final else "trued_up": 2840, "provisional": 40}, "deliveries": [delivery],
        "received_at": now - timedelta(hours=5), "rows": shown, "difference": "0",
    }  # fmt: skip
    there = kind != "empty"
    body = {
        "period": period if there else None, "periods": PERIODS if there else [], "waterfalls": [one] if there else [],
        "meta": {"basis": "allocation", "freshness": now},
    }  # fmt: skip
    answer: dict[str, Any] = ReconcileOut.model_validate(body).model_dump(mode="json")
    return answer
