"""The stream part alone: lines already in the log → Flink → delta files → rollups, beside DuckDB on the same lines."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from bench import stream_throughput
from bench.figures import Figure, Row


def measure(*, quick: bool) -> Row:
    lines = 200_000 if quick else stream_throughput.LINES
    folder = Path(tempfile.mkdtemp(prefix="tfbench"))
    folder.chmod(0o755)
    try:
        found = stream_throughput.run(folder / "data", lines)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    busy = ", ".join(f"{name} {share:.2f}" for name, share in list(found["busy_cores"].items())[:4])
    return Row(
        "stream", "log → deltas → rollups (the stream alone), dedupe on",
        f"{lines:,} lines, {stream_throughput.DUPLICATES:.0%} repeated, {stream_throughput.TENANTS} tenants × "
        f"{stream_throughput.MODELS} models",
        (
            Figure(
                "stream", found["records_per_s"], "records/s", peer=found["duckdb_records_per_s"],
                peer_is="DuckDB one-shot on the lines",
            ),
            Figure("lines counted wrong", abs(found["counted"] - found["distinct_ids"]), "records", "less", floor=0, goal=0),
            Figure("segment → rollup p95", found["visible_to_rollup_p95_s"], "s", "less"),
        ),
        f"cores busy by chain of operators: {busy}; last checkpoint {found['checkpoint_ms']} ms, state "
        f"{found['state_bytes'] / 2**20:.0f} MiB",
        found["start_up_s"], found,
    )  # fmt: skip
