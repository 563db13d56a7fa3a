"""GPU product names of node labels -> the names of the rate card."""

from __future__ import annotations

import re

_MEMORY = re.compile(r"\d+GB")
_FORM = {
    "NVIDIA",
    "TESLA",
    "GEFORCE",
    "SXM",
    "SXM2",
    "SXM3",
    "SXM4",
    "SXM5",
    "SXM6",
    "PCIE",
    "NVL",
    "HBM3",
    "HBM3E",
    "HBM2E",
    "GPU",
}
_ONE_SIZE = {"A10G", "L4", "L40S", "H200", "B200", "B300", "T4", "V100"}
_USUAL = {"H100": "80GB"}


def gpu_type(product: str) -> str:
    """``NVIDIA-A100-SXM4-80GB`` -> ``A100-80GB``, ``NVIDIA-A10G`` -> ``A10G``, ``Tesla-T4`` -> ``T4``. An unknown name stays as
    it is, so that a rate for it can be given under that name."""
    parts = [part for part in re.split(r"[-_ ]+", product) if part and part.upper() not in _FORM]
    memory = next((part.upper() for part in parts if _MEMORY.fullmatch(part.upper())), "")
    models = [part for part in parts if not _MEMORY.fullmatch(part.upper())]
    if len(models) != 1:
        return product
    model = models[0].upper()
    if model in _ONE_SIZE:
        return model
    size = memory or _USUAL.get(model, "")
    return f"{model}-{size}" if size else model
