"""The audit chain: any edit, removal, insertion or reordering is found, and the first broken record is named."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.audit import GENESIS, AuditRecord, chain, verify_records
from core.errors import BadInput

AT = datetime(2026, 11, 30, 12, 0, 0, 123456, tzinfo=UTC)


def built(length: int) -> list[AuditRecord]:
    records: list[AuditRecord] = []
    for n in range(length):
        last = records[-1] if records else None
        records.append(chain(last, AT + timedelta(seconds=n), "ann", "breaker.reset", f"tenant:t{n}", {"extra": "10.5", "n": n}))
    return records


def test_an_empty_and_a_whole_chain_are_intact() -> None:
    assert verify_records([]).intact
    verdict = verify_records(built(5))
    assert (verdict.intact, verdict.records, verdict.last_hash) == (True, 5, built(5)[-1].hash)
    assert built(1)[0].prev_hash == GENESIS


@given(st.integers(0, 4), st.sampled_from(["at", "actor", "action", "subject", "detail", "hash", "prev_hash"]))
def test_an_edited_record_is_the_first_broken_one(position: int, name: str) -> None:
    records = built(5)
    edits = {"at": AT - timedelta(microseconds=1), "detail": {"extra": "10.6", "n": position}}
    records[position] = replace(records[position], **{name: edits.get(name, "mallory")})
    verdict = verify_records(records)
    assert (verdict.intact, verdict.broken_seq, verdict.records) == (False, position + 1, position)


@given(st.integers(0, 3))
def test_a_removed_record_is_named(position: int) -> None:
    records = built(5)
    del records[position]
    verdict = verify_records(records)
    assert not verdict.intact
    assert verdict.broken_seq == position + 1
    assert "missing" in verdict.reason


def test_a_forged_record_with_its_own_right_hash_breaks_the_next() -> None:
    records = built(3)
    records[1] = chain(records[0], AT, "mallory", "breaker.reset", "tenant:t1", {})
    verdict = verify_records(records)
    assert (verdict.broken_seq, verdict.reason) == (3, "does not follow the record before it")


def test_a_cut_off_tail_shows_only_against_a_noted_hash() -> None:
    records = built(5)
    assert verify_records(records[:3]).intact
    verdict = verify_records(records[:3], anchor=records[4].hash)
    assert not verdict.intact
    assert "cut off" in verdict.reason
    assert verify_records(records, anchor=records[2].hash).intact


def test_a_float_cannot_enter_the_trail() -> None:
    with pytest.raises(BadInput, match="floats"):
        chain(None, AT, "ann", "budget.set", "tenant:acme", {"amount": 0.1})
