"""What stands between an AWS account and its first bill, judged from facts that were read elsewhere. Pure: no network, no clock.

A fact that could not be read is ``Unread`` with its reason: its check is unknown, never passed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta

from core.fleet_facts import Verdict

FIRST_DELIVERY = timedelta(hours=24)
"""Until when AWS delivers after an export was made (Data Exports user guide)."""
STALE = timedelta(hours=48)
"""AWS refreshes at least once a day; two days without one is a fault, not a delay."""
DISCOUNT = (
    "until then type what you pay below list: tokenfuse rates discount add --provider aws --percent N --from DATE --reason TEXT"
)


@dataclass(frozen=True, slots=True)
class Unread:
    """Why a fact is not known, and what makes it known. ``is_fault``: not a matter of permission, but wrong."""

    reason: str
    fix: str = ""
    is_fault: bool = False


@dataclass(frozen=True, slots=True)
class Caller:
    account: str
    arn: str

    @property
    def partition(self) -> str:
        return self.arn.split(":")[1] if self.arn.count(":") > 1 else ""


@dataclass(frozen=True, slots=True)
class ExportFacts:
    """One export or report that delivers into the bucket. ``table``: what it selects from; '' for a legacy report."""

    name: str
    table: str
    hourly: bool
    resources: bool
    split: bool
    healthy: bool = True
    trouble: str = ""
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Delivered:
    """The newest delivery of a month in the bucket; ``missing``: files its manifest names and the bucket has not."""

    export: str
    month: date | None
    delivery_id: str
    written_at: datetime
    missing: int = 0


@dataclass(frozen=True, slots=True)
class Imported:
    """The bill in force of (export, month)."""

    export: str
    month: date
    version: int
    delivery_id: str
    is_final: bool
    invoices: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class AwsFacts:
    """Everything that was read at ``now``. ``tags``: status by key, '' where Cost Explorer has not seen it. ``invoices``: issued
    invoice ids of ``closed_month``."""

    now: datetime
    place: str
    caller: Caller | Unread
    objects: int | Unread
    exports: Sequence[ExportFacts] | Unread
    delivered: Sequence[Delivered] | Unread
    imported: Sequence[Imported] | Unread
    tags: Mapping[str, str] | Unread
    invoices: Sequence[str] | Unread
    closed_month: date = field(default=date.min)


@dataclass(frozen=True, slots=True)
class AwsFinding:
    """One check's result. ``fix`` is a line to do, empty where nothing is to be done."""

    check: str
    verdict: Verdict
    reason: str
    fix: str = ""


def examine_aws(facts: AwsFacts) -> tuple[AwsFinding, ...]:
    """Every check, in the order a first bill needs them."""
    parts = (_identity, _bucket, _exports, _delivery, _months, _price_source, _tags, _invoices)
    return tuple(finding for part in parts for finding in part(facts))


def _not_read(check: str, why: Unread) -> AwsFinding:
    return AwsFinding(check, "fail" if why.is_fault else "unknown", why.reason, why.fix)


def _identity(facts: AwsFacts) -> Iterator[AwsFinding]:
    if isinstance(facts.caller, Unread):
        yield _not_read("identity", facts.caller)
    else:
        who = facts.caller
        yield AwsFinding("identity", "pass", f"account {who.account}, partition {who.partition}, as {who.arn}")


def _bucket(facts: AwsFacts) -> Iterator[AwsFinding]:
    if isinstance(facts.objects, Unread):
        yield _not_read("bucket", facts.objects)
    else:
        yield AwsFinding("bucket", "pass", f"{facts.place} can be listed: {facts.objects:,} objects")


def _exports(facts: AwsFacts) -> Iterator[AwsFinding]:
    if isinstance(facts.exports, Unread):
        yield _not_read("export", facts.exports)
        return
    if not facts.exports:
        fix = "create one: deploy/aws/first-bill.yaml (in China deploy/aws/report.aws-cn.json)"
        yield AwsFinding("export", "fail", f"none delivers to {facts.place}", fix)
    for export in facts.exports:
        yield _export(export)


def _export(export: ExportFacts) -> AwsFinding:
    if not export.healthy:
        fix = "deploy/aws/bucket-policy.*.json lets billing deliver; then save the export again"
        return AwsFinding("export", "fail", f"{export.name} cannot deliver: {export.trouble or 'no reason given'}", fix)
    wanted = {"hourly": export.hourly, "with resource ids": export.resources}
    lacking = [what for what, there in wanted.items() if not there]
    if lacking:
        fix = "machines are matched hour by hour: make the export anew from deploy/aws/export-cur2.json"
        return AwsFinding("export", "fail", f"{export.name} is not {' and not '.join(lacking)}", fix)
    extra = "" if export.split or export.table.startswith("FOCUS") else "; without split cost of pods, which is not needed"
    return AwsFinding("export", "pass", f"{export.name} is hourly with resource ids{extra}")


def _delivery(facts: AwsFacts) -> Iterator[AwsFinding]:
    if isinstance(facts.delivered, Unread):
        yield _not_read("delivery", facts.delivered)
        return
    if facts.delivered:
        newest = max(facts.delivered, key=lambda one: one.written_at)
        age = facts.now - newest.written_at
        said = f"newest: {newest.export} at {_at(newest.written_at)}, {_hours(age)} ago"
        fix = "AWS delivers at least daily: see the export's state in the billing console" if age > STALE else ""
        yield AwsFinding("delivery", "fail" if age > STALE else "pass", said, fix)
        return
    due = first_due(facts)
    if due is None:
        yield AwsFinding("delivery", "unknown", "none yet: the first is due up to 24 hours after the export is made")
    elif facts.now <= due:
        yield AwsFinding("delivery", "unknown", f"none yet: the first is due by {_at(due)}", "look again then")
    else:
        fix = "check the export's state and the bucket policy (deploy/aws/bucket-policy.*.json)"
        yield AwsFinding("delivery", "fail", f"none yet, and the first was due by {_at(due)}", fix)


def first_due(facts: AwsFacts) -> datetime | None:
    """When the first delivery should be there; None where no export says when it was made."""
    exports = () if isinstance(facts.exports, Unread) else facts.exports
    made = [export.created_at for export in exports if export.created_at is not None]
    return min(made) + FIRST_DELIVERY if made else None


def _months(facts: AwsFacts) -> Iterator[AwsFinding]:
    if isinstance(facts.delivered, Unread):
        return
    if isinstance(facts.imported, Unread):
        if facts.delivered:
            yield _not_read("months", facts.imported)
        return
    held = {(one.export, one.month): one for one in facts.imported}
    for found in sorted(facts.delivered, key=lambda one: (one.month or date.min, one.export)):
        if found.month is not None:
            yield _month(facts, found, held.get((found.export, found.month)))


def _month(facts: AwsFacts, found: Delivered, held: Imported | None) -> AwsFinding:
    name = f"{found.export} {found.month:%Y-%m}"
    if found.missing:
        said = f"{name}: {found.missing} files of its manifest are not there"
        return AwsFinding("months", "unknown", said, "it is being written: look again in an hour")
    fix = f"tokenfuse ingest bill {facts.place} --format {_format(facts, found.export)} --month {found.month:%Y-%m}"
    if held is None:
        return AwsFinding("months", "fail", f"{name}: delivered, not imported", fix)
    state = f"version {held.version}, " + (f"final (invoice {', '.join(held.invoices)})" if held.is_final else "not final")
    if held.delivery_id != found.delivery_id:
        return AwsFinding("months", "fail", f"{name}: {state}; a newer delivery is there", fix)
    return AwsFinding("months", "pass", f"{name}: imported, {state}")


def _format(facts: AwsFacts, name: str) -> str:
    exports = () if isinstance(facts.exports, Unread) else facts.exports
    focus = any(export.name == name and export.table.startswith("FOCUS") for export in exports)
    return "aws-focus" if focus else "aws-cur"


def _price_source(facts: AwsFacts) -> Iterator[AwsFinding]:
    if isinstance(facts.imported, Unread):
        yield _not_read("price source", facts.imported)
    elif facts.imported:
        months = sorted({f"{one.month:%Y-%m}" for one in facts.imported})
        yield AwsFinding("price source", "pass", f"the bill for {', '.join(months)}; list price for other months")
    else:
        due = first_due(facts)
        when = f"the first bill is due by {_at(due)}" if due else "a bill is due up to 24 hours after its export is made"
        yield AwsFinding("price source", "unknown", f"list price, bill pending: every cost is at list price; {when}", DISCOUNT)


def _tags(facts: AwsFacts) -> Iterator[AwsFinding]:
    if isinstance(facts.tags, Unread):
        yield _not_read("tags", facts.tags)
        return
    for key, status in facts.tags.items():
        if status == "Active":
            yield AwsFinding("tags", "pass", f"{key} is active: the console groups by it")
        elif status:
            yield AwsFinding("tags", "fail", f"{key} is not active", "tokenfuse tags activate --yes")
        else:
            fix = "if you want it there: tokenfuse tags plan, then apply; it can be activated a day later"
            yield AwsFinding("tags", "unknown", f"{key} is on no billed resource yet", fix)


def _invoices(facts: AwsFacts) -> Iterator[AwsFinding]:
    if isinstance(facts.invoices, Unread):
        yield _not_read("invoice", facts.invoices)
        return
    month = f"{facts.closed_month:%Y-%m}"
    if not facts.invoices:
        yield AwsFinding("invoice", "unknown", f"none is issued for {month} yet: its cost may still change")
        return
    bills = () if isinstance(facts.imported, Unread) else [one for one in facts.imported if one.month == facts.closed_month]
    issued = f"{month} is invoiced as {', '.join(facts.invoices)}"
    if bills and not all(bill.is_final for bill in bills):
        yield AwsFinding("invoice", "fail", f"{issued}, and the imported bill does not say so", "import the month again")
    else:
        yield AwsFinding("invoice", "pass", issued)


def _at(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M}Z"


def _hours(age: timedelta) -> str:
    hours = age.total_seconds() / 3600
    return f"{hours:.0f} h" if hours < 72 else f"{hours / 24:.0f} days"
