"""Which LiteLLM rows are attempts (retries, fallbacks) of one operation, and what follows from seeing them side by side.

All attempts of one request to the proxy carry its ``litellm_call_id``. Of a stream each failed attempt is logged, of a buffered
call only the first; neither says its number, nor whether it was tried again, nor, after a fallback, which model was asked
(LiteLLM 1.95.1, ours to see). Rows that lie together tell: a failure with a later row of its call was tried again, and the first
row names the model asked. A failure that lies alone stays "not known".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from ingest.usage.litellm_call import Call


def told_apart(calls: Sequence[Call]) -> list[Call]:
    """The same calls in their order, with number, follow-up and asked model of those that share a call id."""
    groups: dict[str, list[int]] = defaultdict(list)
    for place, call in enumerate(calls):
        if call.call_id:
            groups[call.call_id].append(place)
    found = list(calls)
    for places in groups.values():
        if len(places) > 1:
            for place, call in zip(places, _together([calls[place] for place in places]), strict=True):
                found[place] = call
    return found


def _together(calls: list[Call]) -> list[Call]:
    last = max(call.finished_at for call in calls)
    failures = sorted({(call.finished_at, call.started_at) for call in calls if call.failed})
    first = min((call for call in calls), key=lambda call: (call.finished_at, call.started_at))
    found = []
    for call in calls:
        asked = call.requested_group or (first.requested_group or first.model_group if first.failed else "")
        number = failures.index((call.finished_at, call.started_at)) + 1 if call.failed else 1
        found.append(
            replace(
                call,
                requested_group=asked,
                attempt=call.attempt if call.attempt > 1 else max(call.attempt, number),
                ends_operation=False if call.failed and call.finished_at < last else call.ends_operation,
            )
        )
    return found
