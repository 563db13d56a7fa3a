"""What the guard adds to a request, beside the same app without it."""

from __future__ import annotations

from bench.figures import Figure, Row
from bench.guard_overhead import run


def measure(*, quick: bool) -> Row:
    tenants = 10_000
    found = run(3_000 if quick else 20_000, tenants)
    bare = found["bare_app_us"]
    figures = []
    for key, took in found.items():
        if key.endswith(": added_us"):
            name = key.removesuffix(": added_us")
            figures.append(Figure(f"{name}, p50", took["p50"], "µs", "less"))
            figures.append(Figure(f"{name}, p99", took["p99"], "µs", "less", floor=50, goal=20))
    body = found["measuring a parsed 4 kB body_us"]
    return Row(
        "guard", "guard's added time per request",
        f"{tenants:,} tenants with open breakers in the policy, none of them the caller; thread time, calmest of ten blocks; "
        "body parse apart",
        tuple(figures),
        f"the bare app takes {bare['p50']:.1f} µs (p99 {bare['p99']:.1f}); of the time under a cap, measuring a parsed 4 kB body "
        f"takes {body['p50']:.1f} µs; a signed tenant costs one HMAC",
        None, found,
    )  # fmt: skip
