"""Log buckets of lengths: mergeable, four to a doubling, by an integer rule that every engine computes alike."""

from __future__ import annotations

BITS = 29
"""Lengths below 2^30 are exact; no request has more tokens (``core.tokens.MAX_TOKENS`` times four buckets is below 2^29)."""

QUARTERS: tuple[int, int, int] = (638_450_709, 759_250_125, 902_905_651)
"""ceil(2^(29 + q/4)) for q = 1, 2, 3: a length shifted to 30 bits has passed its q-th quarter from here on."""

ZERO_BUCKET = -1


def bucket(length: int) -> int:
    """b with ``length`` in [2^(b/4), 2^((b+1)/4)), -1 for 0.

    With e = floor(log2(length)) and the length shifted left by 29 - e, b = 4e + how many QUARTERS it has reached. 2^(b/4) is
    irrational between the powers of two, so comparing with its ceiling is exact.
    """
    if length <= 0:
        return ZERO_BUCKET
    exponent = length.bit_length() - 1
    shifted = length << (BITS - exponent)
    return 4 * exponent + sum(shifted >= edge for edge in QUARTERS)


def bucket_sql(length: str) -> str:
    """The same rule as a SQL expression over the BIGINT expression ``length``; valid in Flink SQL and in DuckDB."""
    exponent = f"(CHAR_LENGTH(BIN({length})) - 1)"
    shifted = f"{length} * CAST(POWER(2, {BITS} - {exponent}) AS BIGINT)"
    steps = " + ".join(f"CASE WHEN {shifted} >= {edge} THEN 1 ELSE 0 END" for edge in QUARTERS)
    return f"CASE WHEN {length} <= 0 THEN {ZERO_BUCKET} ELSE 4 * {exponent} + {steps} END"
