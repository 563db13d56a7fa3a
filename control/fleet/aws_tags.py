"""Cost-allocation tags on AWS: read, put and taken away on resources, activated for the bill. Every failure is named.

AWS answers 200 to a call of which parts failed: ``FailedResourcesMap`` of the tagging API, ``Errors`` of Cost Explorer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from control.fleet.aws_session import Clients, aws_words, billing_region
from core.errors import TokenfuseError
from core.tag_plan import Batch, TagChange, batches

RESOURCES_A_CALL = 20
"""TagResources and UntagResources."""
READ_A_CALL = 50
"""GetResources takes 100 ARNs and answers 50 a page, and takes no page token beside ARNs."""
TAGS_A_CALL = 20
"""UpdateCostAllocationTagsStatus; ListCostAllocationTags takes 100."""
TAGGING = "resourcegroupstaggingapi"
PUT_NEEDS = "tag:TagResources and ec2:CreateTags"
DROP_NEEDS = "tag:UntagResources and ec2:DeleteTags"


@dataclass(frozen=True, slots=True)
class TagDone:
    """What became of one resource's tags in one call. ``error`` is empty where it worked."""

    arn: str
    what: Literal["put", "drop"]
    keys: tuple[str, ...]
    error: str = ""


@dataclass(frozen=True, slots=True)
class CostTag:
    """A tag key as the bill knows it. ``status`` Active, Inactive, or '' : Cost Explorer has not seen it on a billed resource."""

    key: str
    status: str = ""
    last_used: str = ""
    error: str = ""


def read_tags(clients: Clients, arns: Iterable[tuple[str, str]]) -> dict[str, dict[str, str]]:
    """The tags of (region, ARN)s; one that was never tagged has none. Raises BadInput, Refused or Unavailable."""
    by_region: dict[str, list[str]] = defaultdict(list)
    for region, arn in sorted(set(arns)):
        by_region[region].append(arn)
    found: dict[str, dict[str, str]] = {}
    for region, names in by_region.items():
        client = clients(TAGGING, region)
        for part in _parts(names, READ_A_CALL):
            with aws_words(f"tags in {region}", "tag:GetResources"):
                answer = client.get_resources(ResourceARNList=list(part))
            for one in answer["ResourceTagMappingList"]:
                found[one["ResourceARN"]] = {tag["Key"]: tag["Value"] for tag in one.get("Tags", ())}
    return found


def apply_tags(
    clients: Clients, changes: Sequence[TagChange], progress: Callable[[int, int], None] = lambda done, total: None
) -> list[TagDone]:
    """Make the changes, 20 resources a call. A call that fails holds up no other; making them again changes nothing."""
    done: list[TagDone] = []
    calls = batches(changes, RESOURCES_A_CALL)
    for number, batch in enumerate(calls, start=1):
        done += _call(clients, batch)
        progress(number, len(calls))
    return done


def _call(clients: Clients, batch: Batch) -> list[TagDone]:
    what: Literal["put", "drop"] = "put" if batch.put else "drop"
    keys = tuple(batch.put) or batch.drop
    try:
        with aws_words(f"{'tagging' if batch.put else 'untagging'} in {batch.region}", PUT_NEEDS if batch.put else DROP_NEEDS):
            client = clients(TAGGING, batch.region)
            if batch.put:
                answer = client.tag_resources(ResourceARNList=list(batch.arns), Tags=dict(batch.put))
            else:
                answer = client.untag_resources(ResourceARNList=list(batch.arns), TagKeys=list(batch.drop))
    except TokenfuseError as error:
        return [TagDone(arn, what, keys, str(error)) for arn in batch.arns]
    failed: Mapping[str, Any] = answer.get("FailedResourcesMap") or {}
    return [TagDone(arn, what, keys, _failure(failed[arn]) if arn in failed else "") for arn in batch.arns]


def _failure(said: Mapping[str, Any]) -> str:
    return f"{said.get('ErrorCode', 'failed')} ({said.get('StatusCode', '?')}): {said.get('ErrorMessage', '')}".rstrip(": ")


def cost_tags(clients: Clients, region: str, keys: Sequence[str]) -> list[CostTag]:
    """How each key stands in the partition's Cost Explorer. A call costs USD 0.01. Raises BadInput, Refused or Unavailable."""
    client = clients("ce", billing_region(region))
    found: dict[str, CostTag] = {}
    for part in _parts(keys, 100):
        with aws_words("cost allocation tags", "ce:ListCostAllocationTags"):
            answer = client.list_cost_allocation_tags(TagKeys=list(part), Type="UserDefined", MaxResults=100)
        for one in answer.get("CostAllocationTags", ()):
            found[one["TagKey"]] = CostTag(one["TagKey"], one["Status"], one.get("LastUsedDate", ""))
    return [found.get(key, CostTag(key)) for key in keys]


def activate_tags(clients: Clients, region: str, keys: Sequence[str]) -> list[CostTag]:
    """Activate keys, 20 a call; a key that failed says why in ``error``, and a call that failed as a whole for all its keys."""
    made: list[CostTag] = []
    for part in _parts(keys, TAGS_A_CALL):
        try:
            with aws_words("activating cost allocation tags", "ce:UpdateCostAllocationTagsStatus"):
                answer = clients("ce", billing_region(region)).update_cost_allocation_tags_status(
                    CostAllocationTagsStatus=[{"TagKey": key, "Status": "Active"} for key in part]
                )
        except TokenfuseError as error:
            made += [CostTag(key, error=str(error)) for key in part]
            continue
        failed = {one["TagKey"]: f"{one.get('Code', '')}: {one.get('Message', '')}" for one in answer.get("Errors") or ()}
        made += [CostTag(key, "" if key in failed else "Active", error=failed.get(key, "")) for key in part]
    return made


def backfill_tags(clients: Clients, region: str, since: datetime) -> dict[str, str]:
    """Ask that active tags be shown from the month of ``since`` on (at most 12 months back, once in 24 hours).

    Returns {from, requested_at, status}. Raises BadInput (BackfillLimitExceededException among them), Refused or Unavailable."""
    start = since.strftime("%Y-%m-01T00:00:00Z")
    with aws_words("back-filling cost allocation tags", "ce:StartCostAllocationTagBackfill"):
        said = clients("ce", billing_region(region)).start_cost_allocation_tag_backfill(BackfillFrom=start)["BackfillRequest"]
    return {
        "from": said.get("BackfillFrom", start),
        "requested_at": said.get("RequestedAt", ""),
        "status": said.get("BackfillStatus", ""),
    }


def _parts(items: Sequence[str], most: int) -> list[Sequence[str]]:
    return [items[first : first + most] for first in range(0, len(items), most)]
