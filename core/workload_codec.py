"""A workload model as JSON values, and back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from core.errors import BadInput
from core.workload import FEATURES, FINE, FIRST, MOST_NUMBER, WorkloadClass, WorkloadModel

FORMAT = 1


def encode_model(model: WorkloadModel) -> dict[str, Any]:
    """All but version and ``valid_from``, which stand beside it."""
    return {
        "format": FORMAT,
        "features": list(FEATURES),
        "fine": FINE,
        "weights": list(model.weights),
        "classes": [
            {
                "number": one.number, "name": one.name, "centre": list(one.centre), "low": list(one.low),
                "high": list(one.high), "requests": one.requests,
            }
            for one in model.classes
        ],
    }  # fmt: skip


def decode_model(found: Mapping[str, Any], version: int, valid_from: datetime) -> WorkloadModel:
    """Raises BadInput for another format, other features or a number out of place."""
    told = (found.get("format"), found.get("features"), found.get("fine"))
    if told != (FORMAT, list(FEATURES), FINE):
        hint = "It was written by another version of Tokenfuse; train a model with this one."
        raise BadInput("is a workload model of another format", field="format", value=told[0], hint=hint)
    classes = tuple(
        WorkloadClass(
            one["number"], one["name"], tuple(one["centre"]), tuple(one["low"]), tuple(one["high"]), one["requests"]
        )
        for one in found["classes"]
    )  # fmt: skip
    for one in classes:
        if not FIRST <= one.number <= MOST_NUMBER:
            raise BadInput(f"is no class number ({FIRST} to {MOST_NUMBER})", field="number", value=one.number)
    return WorkloadModel(version, valid_from, tuple(found["weights"]), classes)
