"""What an engine's time goes on: non-negative least squares over minutes in which it ran throughout (design 4.3).

busy seconds = s·steps + a·computed prompt tokens + c·generated tokens + k·(KV tokens × steps); coefficients ≥ 0. A fit is judged
on windows it has not seen and used only when it is good there: tokens alone explain little (32 % error on our recording).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext

import numpy as np
from numpy.typing import NDArray

from core.allocate import Weights
from core.money import CONTEXT, ZERO

MIN_WINDOWS = 20
MAX_HELD_OUT_ERROR = 0.10
FOLDS = 5
DIGITS = 12
"""Significant digits kept of a coefficient: more would be noise, and fewer moves a share."""

Rows = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FitWindow:
    """One window of one engine, busy throughout: its busy time and what it did."""

    busy_us: int
    steps: int
    computed_tokens: int
    generated_tokens: int
    kv_token_steps: int

    def row(self) -> tuple[int, int, int, int]:
        return self.steps, self.computed_tokens, self.generated_tokens, self.kv_token_steps


@dataclass(frozen=True, slots=True)
class WorkFit:
    """Microseconds per step, computed token, generated token and KV token-step; median relative error on held-out windows.

    ``usable`` is False, with ``reason``, when there is too little to judge by or the error is too large.
    """

    step_us: float
    computed_us: float
    generated_us: float
    kv_us: float
    held_out_error: float | None
    windows: int
    steps: int
    generated: int
    usable: bool
    reason: str = ""


def fit_work(windows: Sequence[FitWindow]) -> WorkFit:
    """Fit on all windows; judge by ``FOLDS`` interleaved folds, each predicted by the fit of the others."""
    found = [w for w in windows if w.busy_us > 0]
    steps, generated = sum(w.steps for w in found), sum(w.generated_tokens for w in found)
    if len(found) < MIN_WINDOWS:
        reason = f"{len(found)} windows with the engine busy throughout, {MIN_WINDOWS} needed"
        return WorkFit(0.0, 0.0, 0.0, 0.0, None, len(found), steps, generated, False, reason)
    per_busy_us = _rows(found)
    error = _held_out_error(per_busy_us)
    coefficients = _solve(per_busy_us)
    reason = ""
    if error > MAX_HELD_OUT_ERROR:
        reason = f"median error {error:.1%} on held-out windows is above {MAX_HELD_OUT_ERROR:.0%}"
    elif not coefficients[1] > 0 or not generated or not (coefficients[2] > 0 or coefficients[0] > 0):
        reason = "the windows do not tell prompt work from output work"
    return WorkFit(*coefficients, error, len(found), steps, generated, not reason, reason)


def fit_weights(fit: WorkFit) -> Weights | None:
    """Weights per token of a usable fit: an output token also bears its share of the steps, s·steps / Σ generated, else None."""
    if not fit.usable:
        return None
    step, computed, generated, kv = (_decimal(v) for v in (fit.step_us, fit.computed_us, fit.generated_us, fit.kv_us))
    with localcontext(CONTEXT):
        per_output = generated + step * fit.steps / fit.generated
    detail = {"held_out_error": f"{fit.held_out_error:.4f}", "windows": str(fit.windows)}
    return Weights("fit", computed, ZERO, per_output, kv, detail)


def _rows(windows: Sequence[FitWindow]) -> Rows:
    """One row a window, relative to its busy time, so that coefficients × row is 1 where the fit is right."""
    busy = np.array([w.busy_us for w in windows], dtype=float)
    rows: Rows = np.array([w.row() for w in windows], dtype=float) / busy[:, None]
    return rows


def _held_out_error(rows: Rows) -> float:
    """Median relative error over all windows, each predicted by the fit of the folds it is not in."""
    fold_of = np.arange(len(rows)) % FOLDS
    errors = [np.abs(rows[fold_of == fold] @ np.array(_solve(rows[fold_of != fold])) - 1) for fold in range(FOLDS)]
    return float(np.median(np.concatenate(errors)))


def _solve(rows: Rows) -> tuple[float, float, float, float]:
    """NNLS on columns scaled to one, so that tokens and token-steps weigh alike."""
    scale = np.where(rows.max(axis=0) > 0, rows.max(axis=0), 1.0)
    from scipy.optimize import nnls  # slow to import, and most closes fit nothing

    solution, _ = nnls(rows / scale, np.ones(len(rows)))
    step, computed, generated, kv = (float(v) for v in solution / scale)
    return step, computed, generated, kv


def _decimal(value: float) -> Decimal:
    return Decimal(f"{value:.{DIGITS}g}")
