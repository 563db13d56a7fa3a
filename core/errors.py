"""The whole error tree.

TokenfuseError
├── BadInput            what a person or a program handed in is wrong; says where and what to do
│   ├── BadRecord       one record of many; the rest goes on
│   └── CurrencyMismatch
├── NotFound            the thing named does not exist
├── Conflict            the thing exists in a state that forbids the request
├── Refused             the request is understood and not allowed (reason given)
├── Unavailable         try again later (``retry_after_s``)
│   └── DiskFull
└── UnsplittableCost    money to share and nobody to share it with
"""

from __future__ import annotations


class TokenfuseError(Exception):
    """Base of every error raised on purpose. ``code`` is stable and machine-readable; ``hint`` says what to do."""

    code = "error"
    retryable = False

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message.rstrip('.')}: {self.hint}" if self.hint else self.message


class BadInput(TokenfuseError):
    """Input that cannot be taken. ``where`` is "file:line" or a field path; ``field`` and ``value`` name the fault."""

    code = "bad_input"

    def __init__(self, message: str, *, where: str = "", field: str = "", value: object = None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.where, self.field, self.value = where, field, value

    def __str__(self) -> str:
        shown = "" if self.value is None else f" (value {str(self.value)[:80]!r})"
        place = f"{self.where}: " if self.where else ""
        name = f"{self.field}: " if self.field else ""
        return f"{place}{name}{self.message}{shown}. {self.hint}".rstrip(" .") + "."


class BadRecord(BadInput):
    """One record that breaks an invariant; it is quarantined with this reason, never clamped or dropped."""

    code = "bad_record"


class CurrencyMismatch(BadInput):
    code = "currency_mismatch"


class NotFound(TokenfuseError):
    code = "not_found"


class Conflict(TokenfuseError):
    code = "conflict"


class Refused(TokenfuseError):
    code = "refused"


class Unavailable(TokenfuseError):
    code = "unavailable"
    retryable = True

    def __init__(self, message: str, *, retry_after_s: int = 5, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class DiskFull(Unavailable):
    code = "disk_full"


class UnsplittableCost(TokenfuseError):
    code = "unsplittable_cost"
