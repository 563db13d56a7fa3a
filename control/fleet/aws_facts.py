"""What an AWS account says of its bills, read with the caller's own permissions; what may not be read says which is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypeVar

from control.fleet.aws_session import Clients, aws_words, billing_region
from control.fleet.aws_tags import cost_tags
from core.aws_checks import AwsFacts, Caller, Delivered, ExportFacts, Imported, Unread
from core.errors import BadInput, Refused, TokenfuseError
from ingest.billing.delivery import FileStore, Stored
from ingest.billing.layouts import aws_deliveries
from models.billing_repo import BillVersion

T = TypeVar("T")
NO_PLACE = Unread("no bucket was named", "tokenfuse doctor aws --bucket BUCKET --prefix PREFIX")
NOT_IN_CHINA = "China regions have no such service"


@dataclass(frozen=True, slots=True)
class AwsPlace:
    """Where deliveries are said to lie; ``store`` reads them, None where no bucket was named."""

    bucket: str
    prefix: str
    store: FileStore | None


def gather_aws(
    clients: Clients, region: str, place: AwsPlace, keys: Sequence[str], imported: Sequence[BillVersion] | Unread, now: datetime
) -> AwsFacts:
    """Ask everything; nothing that fails holds up the rest. ``region``: any of the partition. ``keys``: our tag keys."""
    caller = _try(lambda: _caller(clients, region))
    listed: Sequence[Stored] | Unread = NO_PLACE if place.store is None else _try(place.store.listed)
    closed = (now.replace(day=1) - timedelta(days=1)).date().replace(day=1)
    silent = Unread("not asked: AWS does not know the caller") if isinstance(caller, Unread) and caller.is_fault else None

    def ask(read: Callable[[], T]) -> T | Unread:
        return _try(read) if silent is None else silent

    return AwsFacts(
        now=now,
        place=f"s3://{place.bucket}/{place.prefix}" if place.bucket else "the bucket",
        caller=caller,
        objects=listed if isinstance(listed, Unread) else len(listed),
        exports=silent if silent is not None else _exports(clients, region, place),
        delivered=_delivered(place, listed),
        imported=imported if isinstance(imported, Unread) else [_held(bill) for bill in imported if bill.source == "aws"],
        tags=ask(lambda: {one.key: one.status for one in cost_tags(clients, region, keys)}),
        invoices=ask(lambda: _invoices(clients, region, caller, closed)),
        closed_month=closed,
    )


def _try(read: Callable[[], T]) -> T | Unread:
    """A fact, or why it is not known: a missing permission is unknown, everything else that is wrong is a fault."""
    try:
        return read()
    except Refused as error:
        return Unread(error.message, error.hint)
    except BadInput as error:
        where = f"{error.where}: " if error.where else ""
        return Unread(f"{where}{error.message}", error.hint, is_fault=True)
    except TokenfuseError as error:
        return Unread(error.message, error.hint)


def _caller(clients: Clients, region: str) -> Caller:
    with aws_words("the caller's identity", "sts:GetCallerIdentity"):
        said = clients("sts", region).get_caller_identity()
    return Caller(said["Account"], said["Arn"])


def _delivered(place: AwsPlace, listed: Sequence[Stored] | Unread) -> Sequence[Delivered] | Unread:
    store = place.store
    if isinstance(listed, Unread) or store is None:
        return Unread("the bucket was not read", "" if isinstance(listed, Unread) else NO_PLACE.fix)
    written = {stored.key: stored.modified for stored in listed}
    found = _try(lambda: aws_deliveries(store, listed))
    if isinstance(found, Unread):
        return found
    return [
        Delivered(
            one.export, one.period, one.delivery_id,
            datetime.fromtimestamp(written[one.manifest[0]], UTC), len(one.missing),
        )
        for one in found if one.manifest is not None
    ]  # fmt: skip


def _held(bill: BillVersion) -> Imported:
    return Imported(bill.export, bill.billing_period, bill.version, bill.delivery_id, bill.is_final, bill.invoice_ids)


def _exports(clients: Clients, region: str, place: AwsPlace) -> Sequence[ExportFacts] | Unread:
    """Data Exports and legacy reports into the bucket. What one service does not tell, the other may."""
    if not place.bucket:
        return NO_PLACE
    reports = _try(lambda: _reports(clients, region, place))
    exports: Sequence[ExportFacts] | Unread = ()
    if billing_region(region) == "us-east-1":
        exports = _try(lambda: _data_exports(clients, place))
    found = [*(() if isinstance(exports, Unread) else exports), *(() if isinstance(reports, Unread) else reports)]
    if found:
        return found
    return next((one for one in (exports, reports) if isinstance(one, Unread)), found)


def _data_exports(clients: Clients, place: AwsPlace) -> list[ExportFacts]:
    client, found, more = clients("bcm-data-exports", "us-east-1"), [], dict[str, str]()
    while True:
        with aws_words("data exports", "bcm-data-exports:ListExports"):
            page = client.list_exports(**more)
        for one in page["Exports"]:
            with aws_words(f"export {one['ExportName']}", "bcm-data-exports:GetExport"):
                said = client.get_export(ExportArn=one["ExportArn"])["Export"]
            target = said["DestinationConfigurations"]["S3Destination"]
            if _is_there(place, target["S3Bucket"], target["S3Prefix"]):
                found.append(_data_export(said, one["ExportStatus"]))
        if not page.get("NextToken"):
            return found
        more = {"NextToken": page["NextToken"]}


def _is_there(place: AwsPlace, bucket: str, prefix: str) -> bool:
    """Whether an export's folder and the place's overlap."""
    ours, theirs = f"{place.prefix.strip('/')}/".lstrip("/"), f"{prefix.strip('/')}/".lstrip("/")
    return bucket == place.bucket and (ours.startswith(theirs) or theirs.startswith(ours))


def _data_export(said: Mapping[str, Any], status: Mapping[str, Any]) -> ExportFacts:
    table = said["DataQuery"]["QueryStatement"].rpartition(" ")[2]
    settings: Mapping[str, str] = (said["DataQuery"].get("TableConfigurations") or {}).get(table, {})
    focus = table.startswith("FOCUS")
    return ExportFacts(
        name=said["Name"],
        table=table,
        hourly=settings.get("TIME_GRANULARITY") == "HOURLY",
        resources=focus or settings.get("INCLUDE_RESOURCES") == "TRUE",
        split=settings.get("INCLUDE_SPLIT_COST_ALLOCATION_DATA") == "TRUE",
        healthy=status.get("StatusCode") != "UNHEALTHY",
        trouble=status.get("StatusReason", ""),
        created_at=status.get("CreatedAt"),
    )


def _reports(clients: Clients, region: str, place: AwsPlace) -> list[ExportFacts]:
    client, found, more = clients("cur", billing_region(region)), [], dict[str, str]()
    while True:
        with aws_words("cost and usage reports", "cur:DescribeReportDefinitions"):
            page = client.describe_report_definitions(**more)
        found += [_report(one) for one in page.get("ReportDefinitions", ()) if _is_there(place, one["S3Bucket"], one["S3Prefix"])]
        if not page.get("NextToken"):
            return found
        more = {"NextToken": page["NextToken"]}


def _report(said: Mapping[str, Any]) -> ExportFacts:
    extra, last = said.get("AdditionalSchemaElements", ()), said.get("ReportStatus", {}).get("lastStatus", "SUCCESS")
    return ExportFacts(
        name=said["ReportName"],
        table="",
        hourly=said["TimeUnit"] == "HOURLY",
        resources="RESOURCES" in extra,
        split="SPLIT_COST_ALLOCATION_DATA" in extra,
        healthy=last == "SUCCESS",
        trouble=last,
    )


def _invoices(clients: Clients, region: str, caller: Caller | Unread, month: date) -> list[str]:
    if billing_region(region) != "us-east-1":
        raise Refused(f"invoices are not told by AWS here: {NOT_IN_CHINA}", hint="a bill is final when its rows name the invoice")
    if isinstance(caller, Unread):
        raise Refused("whose invoices is not known", hint=caller.fix)
    with aws_words("invoices", "invoicing:ListInvoiceSummaries"):
        page = clients("invoicing", "us-east-1").list_invoice_summaries(
            Selector={"ResourceType": "ACCOUNT_ID", "Value": caller.account},
            Filter={"BillingPeriod": {"Month": month.month, "Year": month.year}},
        )
    return sorted(one["InvoiceId"] for one in page["InvoiceSummaries"] if one.get("InvoiceId"))
