"""Appends to the log, each fsynced before it returns, beside a bare fdatasync on the same disk."""

from __future__ import annotations

from bench import spool_append
from bench.figures import Figure, Row
from bench.scratch import scratch


def measure(*, quick: bool) -> Row:
    seconds = 0.5 if quick else 3.0
    with scratch() as folder:
        found = [spool_append.run(folder / f"{b}x{t}", b, t, seconds) for b in (1, 100, 1000) for t in (1, 8)]
        bare_ms = spool_append.bare_fsync_ms(folder)
    alone, best = found[0], max(found, key=lambda row: row["records_per_s"])
    return Row(
        "spool", "log append, fsynced before it returns", "batches of 1, 100 and 1000 records by 1 and 8 threads; 1 kB records",
        (
            Figure("one record, one thread, p50", alone["p50_ms"], "ms", "less", peer=bare_ms, peer_is="bare fdatasync"),
            Figure(f"best rate (batch {best['batch']:.0f}, {best['threads']:.0f} threads)", best["records_per_s"], "records/s"),
        ),
        f"one append costs {alone['p50_ms'] / bare_ms:.1f} bare syncs: a line and its full record are two files, synced together",
        None, {"rows": found, "bare_fsync_ms": bare_ms},
    )  # fmt: skip
