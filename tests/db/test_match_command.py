"""``tokenfuse match``, ``show unmatched``, ``show nodes`` and ``node identify`` as a person uses them."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from bill_lines import write_cur
from cli_command import Command
from join_world import line

pytestmark = pytest.mark.db
JULY = ("--from", "2026-07-01", "--to", "2026-08-01")


@pytest.fixture
def july(command: Command, tmp_path: Path) -> None:
    """gpu-1 serves since July and is known as i-1; i-1 and i-2 are billed for two hours each."""
    command(
        "node", "declare", "--target", "http://a", "--node", "gpu-1", "--deployment", "lab/prod/tiny", "--gpu", "A100-40GB",
        "--count", "8", "--from", "2026-07-01",
    )  # fmt: skip
    command("node", "identify", "gpu-1", "aws:///us-east-1a/i-1", "--cluster", "lab", "--type", "p4d.24xlarge")
    rows = [line(resource, "13.00", hour) for resource in ("i-1", "i-2") for hour in (0, 1)]
    command("ingest", "bill", str(write_cur(tmp_path / "july.csv", rows)), "--format", "aws-cur")


@pytest.mark.usefixtures("july")
def test_effective_rates_per_gpu_hour_with_exact_parts(command: Command) -> None:
    _, (row,), _ = command("show", "nodes", *JULY)
    assert (row["node"], row["matched_by"], row["hours"], row["gpus"]) == ("gpu-1", "provider id", "2", 8)
    assert (row["effective_per_hour"], row["effective_per_gpu_hour"], row["list_per_hour"]) == ("13", "1.625", None)
    parts = [*row["gpu_cost"].values(), row["cpu_cost"], row["memory_cost"]]
    assert sum(map(Decimal, parts)) == Decimal(row["effective_cost"])
    _, hours, _ = command("show", "nodes", *JULY, "--by-hour")
    assert [(one["hour"], one["effective_cost"]) for one in hours] == [
        ("2026-07-01T00:00:00Z", "13"),
        ("2026-07-01T01:00:00Z", "13"),
    ]
    _, table, said = command("show", "nodes", *JULY, as_json=False)
    assert "p4d.24xlarge" in table
    assert "9:1" in said


@pytest.mark.usefixtures("july")
def test_a_charge_is_previewed_confirmed_listed_and_undone(command: Command) -> None:
    _, found, _ = command("show", "unmatched")
    assert [(row["resource_id"], row["effective_cost"]) for row in found["charges"]] == [("i-2", "26")]
    code, preview, _ = command("match", "confirm", "i-2", "gpu-1", "--dry-run")
    assert (code, preview["dry_run"], [row["effective"] for row in preview["moved"]]) == (0, True, ["-26", "26"])
    assert command("match", "list")[1] == []
    _, _, said = command("match", "confirm", "i-2", "lab/gpu-1", "--reason", "asked ops", as_json=False)
    assert "lab/gpu-1: +26 USD effective, +26 USD billed" in said
    _, (stored,), _ = command("match", "list")
    assert (stored["resource"], stored["node"], stored["since"], stored["until"]) == ("i-2", "lab/gpu-1", "always", None)
    assert command("match", "undo", str(stored["id"]))[0] == 0
    assert command("match", "undo", str(stored["id"]))[0] == 1
    assert [row["undone_by"] != "" for row in command("match", "list", "--all")[1]] == [True]


@pytest.mark.usefixtures("july")
def test_an_ignored_resource_is_shown_apart(command: Command) -> None:
    command("match", "ignore", "i-2", "--reason", "a workstation")
    _, found, _ = command("show", "unmatched")
    assert (found["charges"], [row["resource_id"] for row in found["ignored"]]) == ([], ["i-2"])
    _, table, _ = command("show", "unmatched", as_json=False)
    assert "Every charge of a machine is matched." in table
    assert "Ignored" in table


@pytest.mark.usefixtures("july")
def test_wrong_words_say_what_to_do(command: Command) -> None:
    code, _, error = command("match", "confirm", "i-2", "gpu-9")
    assert (code, "the inventory has no node 'gpu-9'" in error, "tokenfuse node list" in error) == (1, True, True)
    code, _, error = command("match", "confirm", "i-2", "gpu-1", "--from", "2026-07-01T00:10:00Z")
    assert (code, "must be a whole hour" in error) == (2, True)
    code, _, error = command("match", "confirm", "i-8", "gpu-1")
    assert (code, "no bill in force charges 'i-8'" in error) == (1, True)


def test_an_empty_installation_says_so(command: Command) -> None:
    assert "No bill was imported" in command("show", "unmatched", as_json=False)[2]
    assert "Nobody confirmed or ignored" in command("match", "list", as_json=False)[1]
    assert "No bill charges a machine" in command("show", "nodes", as_json=False)[1]
    assert "0 deliveries were looked at" in command("match", "run", as_json=False)[2]
