"""The stream part alone: lines already in the log → Flink → delta files → rollups, beside DuckDB on the same lines."""

from __future__ import annotations

from bench import stream_throughput
from bench.figures import Figure, Row
from bench.scratch import scratch


def measure(*, quick: bool) -> Row:
    lines = 200_000 if quick else stream_throughput.LINES
    with scratch() as folder:
        found = stream_throughput.run(folder / "data", lines)
    profile = found["profile"]
    busy = ", ".join(f"{name} {share:.2f}" for name, share in list(profile["busy_cores"].items())[:4])
    seconds = ", ".join(f"{part} {cpu_s}" for part, cpu_s in found["cpu_s_per_million"].items())
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
        f"CPU seconds a million lines: {seconds} (DuckDB {found['duckdb_cpu_s_per_million']}); cores busy by chain of "
        f"operators: {busy}; last checkpoint {profile['checkpoint_ms']} ms, state {profile['state_bytes'] / 2**20:.0f} MiB",
        found["start_up_s"], found,
    )  # fmt: skip
