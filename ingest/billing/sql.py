"""DuckDB expressions that every bill shares: null spellings, exact amounts, times, and the rules of ``core`` written as SQL."""

from __future__ import annotations

from collections.abc import Iterable

from core.billing import BUCKET_RULES, GPU_INSTANCES

NULL_SPELLINGS = ("", "null", "(null)", "none", "n/a", "-", "<na>")
"""Texts that mean "nothing", compared without regard to case and blanks around them."""
TIME_FORMATS = (
    "%m/%d/%y", "%m/%d/%Y", "%m/%d/%Y %H:%M:%S", "%m/%d/%Y %H:%M", "%Y%m%dT%H%M%S.%fZ", "%Y/%m/%d %H:%M:%S", "%Y/%m/%d", "%Y%m",
)  # fmt: skip
"""Tried in order where a time is not ISO 8601. Days before months are not guessed."""


def quoted(name: str) -> str:
    """An identifier."""
    return '"' + name.replace('"', '""') + '"'


def string(text: str) -> str:
    """A text literal."""
    return "'" + text.replace("'", "''") + "'"


def strings(texts: Iterable[str]) -> str:
    """A parenthesised list of text literals."""
    return "(" + ", ".join(string(text) for text in texts) + ")"


MACROS = (
    f"CREATE OR REPLACE MACRO txt(x) AS CASE WHEN lower(trim(x)) IN {strings(NULL_SPELLINGS)} THEN NULL ELSE x END",
    # An offset is heeded (TIMESTAMP alone would drop it); a time without one is UTC. "5/1/25" would cast to the year 5.
    "CREATE OR REPLACE MACRO at_utc(x) AS CASE WHEN substr(x, 5, 1) = '-' THEN timezone('UTC', TRY_CAST(x AS TIMESTAMPTZ)) "
    f"ELSE try_strptime(x, [{', '.join(string(f) for f in TIME_FORMATS)}]) END",
    # "$10,000.00 " as people write it; a comma counts only where it separates thousands.
    "CREATE OR REPLACE MACRO bare_amount(x) AS CASE "
    r"WHEN regexp_full_match(trim(x), '[-+]?\$?\s*\d{1,3}(,\d{3})+(\.\d+)?') OR starts_with(ltrim(trim(x), '-+'), '$') "
    "THEN replace(replace(replace(trim(x), '$', ''), ',', ''), ' ', '') ELSE trim(x) END",
    r"CREATE OR REPLACE MACRO is_amount(x) AS regexp_full_match(x, '[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?')",
    "CREATE OR REPLACE MACRO decimals_of(x) AS CASE WHEN x IS NULL THEN 0 "
    "WHEN contains(lower(x), 'e') THEN greatest(0, length(split_part(split_part(lower(x), 'e', 1), '.', 2)) "
    "- coalesce(TRY_CAST(split_part(lower(x), 'e', 2) AS INTEGER), 0)) "
    "WHEN contains(x, '.') THEN length(x) - strpos(x, '.') ELSE 0 END",
)
"""Macros of every session. ``txt``: text or NULL; ``at_utc``: TIMESTAMP in UTC; the others read amounts."""


def bucket_sql(kind: str = "kind", charge_class: str = "charge_class", family: str = "family") -> str:
    """``core.billing.bucket_of`` as SQL over three text expressions."""
    fields = {"kind": kind, "charge_class": charge_class, "family": family}
    cases = " ".join(
        "WHEN "
        + " AND ".join(f"{fields[name]} IN {strings(sorted(allowed))}" for name, allowed in rule.when.items())
        + f" THEN {string(rule.bucket)}"
        for rule in BUCKET_RULES
    )
    return f"CASE {cases} ELSE 'unknown' END"


def gpu_sql(instance_type: str, provider: str = "") -> str:
    """``core.billing.is_gpu_instance`` as SQL; ``provider`` is the cloud's name, not an expression. NULL instance: false."""
    patterns = [GPU_INSTANCES[provider]] if provider in GPU_INSTANCES else list(GPU_INSTANCES.values())
    tests = " OR ".join(f"regexp_matches(lower({instance_type}), {string(pattern)})" for pattern in patterns)
    return f"coalesce({tests}, false)"
