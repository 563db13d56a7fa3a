"""Rules as YAML: what ships, both ways, and faults that name file, line, field and value."""

from __future__ import annotations

from datetime import timedelta

import pytest
import yaml

from control.rule_files import parse_rules, rules_text, shipped_rules
from core.detect import OwnPercentile
from core.errors import BadInput
from core.rules import METRICS, rule_as, rule_from, span_text

GOOD = {"name": "mine", "metric": "kv_use", "detector": {"kind": "static", "fire": 0.8, "clear": 0.7}}


def test_what_ships_is_in_shadow_with_a_source_and_a_remedy() -> None:
    rules = shipped_rules()
    assert all(rule.shadow and rule.source and rule.remedy for rule in rules)
    assert len({rule.name for rule in rules}) == len(rules)
    tier_1 = next(rule for rule in rules if rule.tier == 1 and rule.enabled)
    assert tier_1.detector == OwnPercentile(90, 1.3, timedelta(days=7), True, 200)
    assert {
        "kv_use",
        "preemptions",
        "hit_rate",
        "decode_ms_per_token",
        "memory_fragmentation",
        "over_p90_share",
        "batch_gap",
    } <= {rule.metric for rule in rules}


def test_exported_rules_are_read_as_the_same_rules() -> None:
    rules = shipped_rules()
    assert parse_rules(rules_text(rules).encode(), "export") == rules
    assert [rule_from(rule_as(rule)) for rule in rules] == rules


def test_a_short_rule_has_the_metrics_least_window() -> None:
    assert rule_from(GOOD).window == timedelta(minutes=5)
    assert rule_from({**GOOD, "metric": "over_p90_share"}).window == METRICS["over_p90_share"].step


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": "Mine!"}, "name"),
        ({"name": None}, "name"),
        ({"metric": "gpu"}, "metric"),
        ({"scope": "tenant:acme"}, "scope"),
        ({"scope": "each:user"}, "scope"),
        ({"metric": "over_p90_share", "window": "5m"}, "window"),
        ({"window": "7m"}, "window"),
        ({"window": "2h"}, "window"),
        ({"for": "soon"}, "for"),
        ({"tier": 3}, "tier"),
        ({"severity": "loud"}, "severity"),
        ({"enabled": "no"}, "enabled"),
        ({"min_money": 0.1}, "min_money"),
        ({"min_money": "-1"}, "min_money"),
        ({"channels": "slack"}, "channels"),
        ({"colour": "red"}, "colour"),
        ({"detector": {"kind": "oracle"}}, "detector.kind"),
        ({"detector": {"kind": "static", "fire": 1}}, "detector.clear"),
        ({"detector": {"kind": "percentile", "percentile": 101}}, "detector.percentile"),
        ({"detector": {"kind": "percentile", "zone": "Mars"}}, "time zone"),
        ({"detector": {"kind": "hour_of_week", "direction": "up"}}, "detector.direction"),
        ({"detector": "static"}, "detector"),
    ],
)
def test_a_fault_names_its_field(change: dict[str, object], field: str) -> None:
    text = yaml.safe_dump({"rules": [{**GOOD, **change}]})
    with pytest.raises(BadInput) as caught:
        parse_rules(text.encode(), "mine.yaml")
    assert field in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("rules: [", "mine.yaml:1"),
        ("- a", "one field `rules`"),
        ("rules: []", "one field `rules`"),
        ("# one\nrules:\n  - 3\n", "mine.yaml:3"),
        (yaml.safe_dump({"rules": [GOOD, GOOD]}), "stands twice"),
    ],
)
def test_a_broken_file_names_its_line(text: str, told: str) -> None:
    with pytest.raises(BadInput, match=told.replace("[", r"\[")):
        parse_rules(text.encode(), "mine.yaml")


@pytest.mark.parametrize(("span", "text"), [(timedelta(minutes=5), "5m"), (timedelta(hours=6), "6h"), (timedelta(0), "0m"),
                                            (timedelta(days=28), "28d"), (timedelta(hours=36), "36h")])  # fmt: skip
def test_spans_are_written_in_their_largest_whole_unit(span: timedelta, text: str) -> None:
    assert span_text(span) == text
