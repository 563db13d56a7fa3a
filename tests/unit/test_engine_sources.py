"""From settings to what reads and finds engines, and who reads which."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.commands.backfill_prometheus import Plan
from cli.commands.run import _specs
from cli.settings import Settings, load
from cli.sources import discovery_sources, prometheus_settings, servers_read
from core.errors import BadInput
from ingest.engine.claims import Claims, address_of
from ingest.prometheus.cursor import Cursor, Followed, load_cursor, save_cursor
from ingest.prometheus.gaps import holes, is_gone, usual_step_ms

PROMETHEUS = '[[prometheus]]\nname = "main"\nurl = "http://p:9090"\n'


@pytest.fixture
def settings_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    def read(text: str) -> Settings:
        (tmp_path / "tokenfuse.toml").write_text(text)
        monkeypatch.setenv("TOKENFUSE_SETTINGS", str(tmp_path / "tokenfuse.toml"))
        return load()

    return read


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("", False),
        ('[[targets]]\nurl = "http://gpu-1"', True),
        (PROMETHEUS, True),
        (PROMETHEUS + "read = false", False),
        ('[[discovery]]\nname = "a"\nkind = "dns"\nnames = ["n"]\nport = "8000"', True),
    ],
)
def test_up_runs_the_scraper_where_there_is_something_to_read(settings_of, text: str, runs: bool) -> None:  # type: ignore[no-untyped-def]
    assert ("scrape" in [spec.name for spec in _specs(settings_of(text))]) == runs


@pytest.mark.parametrize(
    ("block", "field"),
    [
        ('kind = "file"', "files"),
        ('kind = "dns"', "names"),
        ('kind = "dns"\nnames = ["n"]', "port"),
        ('kind = "dns"\nnames = ["n"]\nport = "http"', "port"),
        ('kind = "prometheus"', "prometheus"),
        ('kind = "prometheus"\nprometheus = "other"', "prometheus"),
        ('kind = "kubernetes"', "selector"),
        ('kind = "kubernetes"\nselector = "a=b"', "discovery.kubeconfig"),
        ('kind = "kubernetes"\nselector = "a=b"\nkubeconfig = "absent"', "kubeconfig"),
    ],
)
def test_a_block_that_lacks_something_is_named(  # type: ignore[no-untyped-def]
    settings_of, monkeypatch: pytest.MonkeyPatch, block: str, field: str
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(BadInput) as caught:
        discovery_sources(settings_of(f'{PROMETHEUS}[[discovery]]\nname = "pool"\n{block}\n'))
    assert caught.value.field == field


def test_a_name_used_twice_is_refused(settings_of) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(BadInput, match="twice"):
        servers_read(settings_of(PROMETHEUS + PROMETHEUS))
    block = '[[discovery]]\nname = "a"\nkind = "file"\nfiles = ["f"]\n'
    with pytest.raises(BadInput, match="twice"):
        discovery_sources(settings_of(block + block))


def test_secrets_of_a_block_do_not_show(settings_of) -> None:  # type: ignore[no-untyped-def]
    settings = settings_of(PROMETHEUS + 'token = "hunter2"\nheaders = {"X-Key" = "hunter3"}')
    assert "hunter" not in repr(settings) + repr(prometheus_settings(settings.prometheus[0]))
    assert prometheus_settings(settings.prometheus[0]).access.token == "hunter2"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://gpu-1:8000/metrics", "https://gpu-1:8000/metrics"),
        ("http://gpu-1/metrics", "http://gpu-1:80/metrics"),
        ("http://GPU-1:8000/metrics", "http://gpu-1:8000/metrics"),
    ],
)
def test_two_names_of_one_engine_have_one_address(one: str, other: str) -> None:
    assert address_of(one) == address_of(other)


@pytest.mark.parametrize(
    "other", ["http://gpu-1:8001/metrics", "http://gpu-1:8000/b", "http://gpu-1:8000/metrics#west", "vllm-0"]
)
def test_other_engines_have_other_addresses(other: str) -> None:
    assert address_of("http://gpu-1:8000/metrics") != address_of(other)


def test_what_is_scraped_is_not_read_and_of_two_readers_the_first_keeps_it() -> None:
    claims = Claims()
    claims.scrape(["https://gpu-1:8000/metrics"])
    assert not claims.may_read("a", "http://gpu-1:8000/metrics")
    assert claims.may_read("a", "http://gpu-2:8000/metrics")
    assert not claims.may_read("b", "http://gpu-2:8000/metrics")
    assert claims.may_read("a", "http://gpu-2:8000/metrics")
    claims.scrape([])
    assert claims.may_read("b", "http://gpu-1:8000/metrics"), "an engine that is no longer scraped may be read"


@pytest.mark.parametrize(
    ("read_at_ms", "late_ms", "start_ms"),
    [
        (500_000, 135_000, 365_000),  # at the edge: back to what may still change
        (9_000_000, 135_000, 400_000),  # far behind: all of that is settled
        (410_000, 1_000_000, 100_000),  # never before the first
    ],
)
def test_reading_goes_on_from_what_may_still_have_changed(read_at_ms: int, late_ms: int, start_ms: int) -> None:
    assert Cursor(100_000, 400_000, read_at_ms).start_ms(late_ms) == start_ms


def test_a_cursor_survives_its_file_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    file = tmp_path / "prometheus" / "main.json"
    cursor = Cursor(1, 2, 3, {"vllm": 1}, {"vllm": {"a": "http://a"}}, {"http://a": Followed("vllm", "", 15_000, 2)})
    assert load_cursor(file) is None
    save_cursor(file, cursor)
    assert load_cursor(file) == cursor
    for text in ("", "{}", '{"version": 9}', '{"version": 1, "targets": {"a": {"x": 1}}}', "[]"):
        file.write_text(text)
        with pytest.raises(BadInput, match="delete the file"):
            load_cursor(file)


def test_a_hole_is_a_silence_of_more_than_three_intervals() -> None:
    assert holes([30, 45, 100, 115], last_ms=15, interval_ms=15) == [(45, 100)]
    assert holes([75], last_ms=15, interval_ms=15) == [(15, 75)]
    assert holes([60], last_ms=15, interval_ms=15) == []
    assert holes([1000], last_ms=0, interval_ms=15) == [], "before the first scrape there is no hole"
    assert holes([30, 9000], last_ms=15, interval_ms=None) == [], "without a schedule nothing is late"


@pytest.mark.parametrize(
    ("times", "step_ms"), [([], None), ([5], None), ([5, 20], None), ([5, 20, 35], 15), ([5, 20, 35, 900], 15)]
)
def test_the_schedule_is_the_usual_distance(times: list[int], step_ms: int | None) -> None:
    assert usual_step_ms(times) == step_ms


@pytest.mark.parametrize(("silent_ms", "gone"), [(60_000, False), (60_001, True)])
def test_a_target_is_gone_after_a_minute_of_silence(silent_ms: int, gone: bool) -> None:
    assert is_gone(1000, 15_000, 1000 + silent_ms) is gone


def test_history_has_a_name_of_its_own_where_later_samples_are_counted_already() -> None:
    plan = Plan(0, 10_000, {"http://a/metrics": 5_000})
    assert plan.name("http://a/metrics", 4_999) == "http://a/metrics#before-5"
    assert plan.name("http://a/metrics", 5_000) is None
    assert plan.name("http://b/metrics", 9_000) == "http://b/metrics"
