"""A delivery into DATA/bills and the database: fetched whole, read exactly, and either in force or refused with its reason."""

from __future__ import annotations

import shutil
import uuid
from dataclasses import replace
from pathlib import Path

from sqlalchemy import Connection

from core.errors import BadInput, Conflict, Unavailable
from ingest.billing.adapter import BillOptions
from ingest.billing.charges import write_charges
from ingest.billing.delivery import Accept, Delivery, FileStore, FoundDelivery, digest_of
from ingest.billing.lines import open_session, read_lines
from ingest.billing.switch import ImportedBill, ImportSettings, Switch, imported
from models.billing_repo import NewBill, add_version, lock_bills, versions_with_digest
from models.database import transaction


class BillImport:
    """Imports deliveries of one format, one after another."""

    def __init__(self, settings: ImportSettings) -> None:
        self._settings = settings

    def run(self, store: FileStore, found: FoundDelivery) -> list[ImportedBill]:
        """Import one delivery; several billing periods of a file without a manifest are a delivery each.

        Raises BadInput when it is incomplete, cut short or cannot be read exactly, Conflict when a rule forbids it to take the
        former one's place; both leave the former one as it is and (but for a dry run) a refused version with the reason.
        """
        job = self._settings
        work = job.data_dir / "bills" / f".work-{uuid.uuid4().hex[:12]}"
        work.mkdir(parents=True)
        try:
            return self._run(store, found, work)
        except (BadInput, Conflict) as error:
            self._note_refusal(store, found, error)
            raise
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _run(self, store: FileStore, found: FoundDelivery, work: Path) -> list[ImportedBill]:
        job = self._settings
        delivery = fetch_delivery(store, found, work, job.format, job.options)
        with transaction(job.db) as connection:
            before = _already(connection, delivery, job.accept)
        if before:
            return before
        session = open_session(work, memory_mb=job.memory_mb)
        try:
            lines = read_lines(session, delivery.files, work)
            plan = job.adapter.plan(lines.columns, job.options)
            charges = write_charges(session, lines, plan, work, period=delivery.period, accept=job.accept)
            return Switch(job, session, delivery, lines, charges, plan.notes).into_place(work)
        finally:
            session.close()

    def _note_refusal(self, store: FileStore, found: FoundDelivery, error: Exception) -> None:
        """A refused version, where it can be told of which period: once, however often it is tried."""
        job = self._settings
        if job.dry_run or found.period is None:
            return
        digest = digest_of(job.format, job.options, found.manifest[1] if found.manifest else b"", ())
        bill = NewBill(
            source=job.options.source or job.adapter.source or "unknown",
            export=job.options.export or found.export,
            billing_period=found.period,
            delivery_id=found.delivery_id,
            format=job.format,
            origin=store.name(""),
            status="refused",
            reason=str(error),
            digest=f"refused-{digest}",
            received_at=job.now,
        )
        with transaction(job.db) as connection:
            lock_bills(connection)
            if not any(v.reason == bill.reason for v in versions_with_digest(connection, bill.digest)):
                add_version(connection, bill)


def fetch_delivery(store: FileStore, found: FoundDelivery, work: Path, format: str, options: BillOptions) -> Delivery:
    """Its files at hand. Raises BadInput naming the files its manifest lists and the place has not; Unavailable when the manifest
    changed meanwhile (an export that overwrites its files was being written)."""
    if found.missing:
        names = ", ".join(found.missing[:3]) + (" …" if len(found.missing) > 3 else "")
        whole = len(found.missing) + len(found.keys)
        raise BadInput(
            f"{len(found.missing)} of the {whole} files of its manifest are not there: {names}",
            where=store.name(found.manifest[0] if found.manifest else ""),
            hint="the delivery is refused, the former one stays; run it again when it is complete",
        )
    paths = []
    for number, key in enumerate(found.keys):
        folder = work / f"in-{number:04d}"
        folder.mkdir()
        paths.append(store.fetch(key, folder))
    manifest = found.manifest[1] if found.manifest else b""
    if found.manifest and store.read(found.manifest[0]) != manifest:
        raise Unavailable("the delivery was written anew while it was read", hint="run it again")
    return Delivery(
        export=options.export or found.export,
        delivery_id=found.delivery_id,
        origin=store.name(""),
        files=tuple((store.name(key), path) for key, path in zip(found.keys, paths, strict=True)),
        period=found.period,
        digest=digest_of(format, options if found.period is None else replace(options, month=None), manifest, paths),
    )


def _already(connection: Connection, delivery: Delivery, accept: Accept) -> list[ImportedBill]:
    """The versions this very content made before, when they are still current. Raises Conflict when they were replaced since."""
    before = [v for v in versions_with_digest(connection, delivery.digest) if v.export == delivery.export]
    if not before or (accept.older and not all(v.status == "current" for v in before)):
        return []
    replaced = [v for v in before if v.status == "superseded"]
    current = {(v.source, v.billing_period) for v in before if v.status == "current"}
    stale = [v for v in replaced if (v.source, v.billing_period) not in current]
    if stale:
        raise Conflict(
            f"this delivery is version {stale[-1].version} of {stale[-1].export} {stale[-1].billing_period:%Y-%m}, "
            f"and {stale[-1].reason or 'a later one took its place'}",
            hint="pass --accept older to make it the current one again",
        )
    return [imported(v, "unchanged") for v in before if v.status == "current"]
