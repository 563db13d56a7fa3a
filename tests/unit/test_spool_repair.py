"""After a power cut or a kill: every acknowledged line is there, torn tails are gone, living writers are left alone."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spool_samples import ids, spool, until, usage_batch

from core.ports import LogBatch
from eventlog.manifest import segments
from eventlog.reader import read_log
from eventlog.repair import repair_dead_writers

ACKED = ["a1", "a2", "团队"]
TAIL = ["b1", "b2"]


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, int]:
    """The folder as a power cut finds it, and the sizes of both files up to the last acknowledged line."""
    folder = tmp_path_factory.mktemp("crash")
    log = spool(folder / "live")
    log.append("usage", usage_batch(*ACKED))
    sizes = {path.suffix: path.stat().st_size for path in (folder / "live/usage/000001/.open").iterdir()}
    log.append("usage", usage_batch(*TAIL))
    for name in ("usage", "usage.full", ".writers"):
        shutil.copytree(folder / "live" / name, folder / "image" / name)
    log.close()
    return folder / "image", sizes[".csv"], sizes[".jsonl"]


def recovered(image: Path, scratch: Path, csv_bytes: int, full_bytes: int, *, fill: bytes = b"") -> list[str]:
    """The request ids that survive when the files end there; the records must be those of the same lines."""
    shutil.copytree(image, scratch)
    for path in (scratch / "usage/000001/.open").iterdir():
        size = csv_bytes if path.suffix == ".csv" else full_bytes
        os.truncate(path, min(size, path.stat().st_size))
        with path.open("ab") as file:
            file.write(fill)
    repair_dead_writers(scratch, "usage")
    lines = list(read_log(scratch, "usage", None, 100))
    found = [one.line.split(",")[0] for one in lines]
    assert [one.record for one in lines] == [f'{{"request_id":"{name}"}}'.encode() for name in found]
    assert not list((scratch / "usage/000001/.open").iterdir())
    assert sum(file.lines for file in segments(scratch, "usage", "000001")) == len(found)
    shutil.rmtree(scratch)
    return found


def sizes_of(image: Path) -> tuple[int, int]:
    by_suffix = {path.suffix: path.stat().st_size for path in (image / "usage/000001/.open").iterdir()}
    return by_suffix[".csv"], by_suffix[".jsonl"]


def test_lines_cut_at_any_byte_after_the_last_ack_lose_no_acknowledged_line(
    crashed: tuple[Path, int, int], tmp_path: Path
) -> None:
    image, acked, _ = crashed
    whole, records = sizes_of(image)
    for size in range(acked, whole + 1):
        found = recovered(image, tmp_path / "x", size, records)
        assert found[:3] == ACKED
        assert found[3:] == TAIL[: len(found) - 3]


def test_records_cut_at_any_byte_after_the_last_ack_lose_no_acknowledged_line(
    crashed: tuple[Path, int, int], tmp_path: Path
) -> None:
    image, _, acked = crashed
    lines, whole = sizes_of(image)
    for size in range(acked, whole + 1):
        assert recovered(image, tmp_path / "x", lines, size)[:3] == ACKED


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_both_files_cut_anywhere_leave_a_prefix_of_whole_lines(
    crashed: tuple[Path, int, int], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Below the acknowledged size the disk itself lied; even then nothing torn or unpaired is published."""
    image, acked_csv, acked_full = crashed
    lines, records = sizes_of(image)
    csv_bytes, full_bytes = data.draw(st.integers(0, lines)), data.draw(st.integers(0, records))
    fill = data.draw(st.sampled_from([b"", b"\0" * 50, b"\0\0\n", b"x\n"]))
    found = recovered(image, tmp_path_factory.mktemp("cut") / "x", csv_bytes, full_bytes)
    assert found == (ACKED + TAIL)[: len(found)]
    if csv_bytes >= acked_csv and full_bytes >= acked_full:
        assert found[:3] == ACKED
        assert recovered(image, tmp_path_factory.mktemp("cut") / "x", acked_csv, acked_full, fill=b"\0" * len(fill)) == ACKED


def test_a_cut_between_the_two_renames_publishes_the_lines_with_their_records(
    crashed: tuple[Path, int, int], tmp_path: Path
) -> None:
    shutil.copytree(crashed[0], tmp_path / "x")
    [records] = (tmp_path / "x/usage/000001/.open").glob("*.jsonl")
    records.rename(tmp_path / "x/usage.full/000001" / records.name)
    [file] = repair_dead_writers(tmp_path / "x", "usage")
    assert file.lines == 5
    assert len(list(read_log(tmp_path / "x", "usage", None, 100))) == 5


def test_a_segment_without_a_whole_line_vanishes(crashed: tuple[Path, int, int], tmp_path: Path) -> None:
    assert recovered(crashed[0], tmp_path / "x", 10, 10_000) == []


def test_a_topic_without_records_is_repaired_too(tmp_path: Path) -> None:
    log = spool(tmp_path / "live")
    log.append("fault", LogBatch(['{"a":1}', '{"a":2}']))
    shutil.copytree(tmp_path / "live", tmp_path / "image")
    log.close()
    [torn] = (tmp_path / "image/fault/000001/.open").glob("*.csv")
    with torn.open("ab") as file:
        file.write(b'{"a":')
    log = spool(tmp_path / "image")
    assert [one.line for one in log.read("fault")] == ['{"a":1}', '{"a":2}']
    log.close()


def test_a_living_writers_segment_is_not_touched(tmp_path: Path) -> None:
    one = spool(tmp_path)
    one.append("usage", usage_batch("r1"))
    two = spool(tmp_path)
    assert repair_dead_writers(tmp_path, "usage") == []
    assert segments(tmp_path, "usage", "000001") == []
    one.append("usage", usage_batch("r2"))
    one.close()
    assert ids(two) == ["r1", "r2"]
    two.close()


WRITE_FOREVER = """
import sys
from pathlib import Path
sys.path[:0] = [sys.argv[2], sys.argv[3]]
from spool_samples import spool, usage_batch
log = spool(Path(sys.argv[1]), age_s=0.03)
n = 0
while True:
    log.append("usage", usage_batch(f"{sys.argv[4]}.{n}", f"{sys.argv[4]}.{n}+"))
    print(n, flush=True)
    n += 1
"""


def start_writer(folder: Path, name: str) -> subprocess.Popen[str]:
    here = Path(__file__).parent
    command = [sys.executable, "-c", WRITE_FOREVER, str(folder), str(here), str(here.parents[1]), name]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_writers_killed_while_others_write_lose_no_acknowledged_line(tmp_path: Path) -> None:
    acked: list[str] = []
    for turn in range(2):
        writers = [start_writer(tmp_path, f"{turn}{name}") for name in "ab"]
        for writer in writers:
            assert writer.stdout is not None
            for _ in range(5 + 7 * turn):
                writer.stdout.readline()
            writer.send_signal(signal.SIGKILL)
        for writer, name in zip(writers, "ab", strict=True):
            rest = writer.communicate()[0].splitlines()
            count = 5 + 7 * turn + len([line for line in rest if line])
            acked += [f"{turn}{name}.{n}" for n in range(count)] + [f"{turn}{name}.{n}+" for n in range(count)]
    log = spool(tmp_path)
    found = ids(log)
    log.close()
    assert len(found) == len(set(found))
    assert set(acked) <= set(found)


def test_a_running_log_publishes_what_another_dead_process_left(tmp_path: Path) -> None:
    log = spool(tmp_path)
    writer = start_writer(tmp_path, "x")
    assert writer.stdout is not None
    writer.stdout.readline()
    writer.kill()
    writer.communicate()
    until(lambda: "x.0" in ids(log))
    assert not list((tmp_path / "usage/000001/.open").iterdir())
    log.close()
