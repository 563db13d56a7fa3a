"""What a mapped log hands to identity rules beside its fields."""

from __future__ import annotations

from typing import Any

import pytest

from core.errors import BadInput
from ingest.usage.mapping import check_mapping

LABELS = {"key_alias": "key.name", "tags": ["tags", "tag_text"], "header.X-Team": "headers.x-team", "metadata.route": "route"}


@pytest.mark.parametrize(
    ("item", "facts"),
    [
        ({}, {}),
        ({"key": {"name": "rag"}, "route": "chat", "headers": {"x-team": "ads"}},
         {"key_alias": "rag", "metadata.route": "chat", "header.x-team": "ads"}),
        ({"tags": ["env:prod", 7], "route": "-"}, {"tags": ["env:prod"]}),
        ({"tag_text": "env:prod, team:ads"}, {"tags": ["env:prod", "team:ads"]}),
        ({"key": {"name": "x" * 65}, "route": 5}, {}),
    ],
    ids=["nothing", "labels", "a list of tags", "tags in one text", "no labels"],
)  # fmt: skip
def test_labels_are_facts_and_the_gateway_is_called_as_the_file(item: dict[str, Any], facts: dict[str, Any]) -> None:
    mapping = check_mapping({"fields": {"model": "m"}, "labels": LABELS}, "our-gw.yaml")
    assert mapping.identity(item) == {"gateway": "our-gw", **facts}


@pytest.mark.parametrize("labels", [{"org": "x"}, {"ip": "x"}, "x", {"key_alias": 1}])
def test_a_label_that_no_rule_can_look_at_is_refused(labels: Any) -> None:
    with pytest.raises(BadInput):
        check_mapping({"fields": {"model": "m"}, "labels": labels}, "our-gw.yaml")
