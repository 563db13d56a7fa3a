"""What one core takes in of LiteLLM's payloads and of our own records: bytes to verdicts, without the log."""

from __future__ import annotations

from functools import partial

from bench.figures import Figure, Row
from bench.ingest_validate import judge, litellm_body, rate, usage_body


def measure(*, quick: bool) -> Row:
    records = 5_000 if quick else 50_000
    bodies = {
        "litellm": litellm_body(records),
        "usage": usage_body(records, raw=False),
    }
    found = {name: rate(partial(judge, name, body)) for name, body in bodies.items()}
    names = {"litellm": "LiteLLM payloads, judged", "usage": "usage/1 NDJSON, judged"}
    size = len(bodies["litellm"]) // records
    return Row(
        "formats", "usage bytes → verdicts, one core",
        f"{records:,} records; LiteLLM: {size:,} bytes each, 200 teams × 8 models, 1 in 20 failed; process time, best of three",
        tuple(Figure(names[name], value, "records/s", "more") for name, value in found.items()),
        "a LiteLLM payload whose sender was met before is read by template: of its time the JSON reader takes a tenth, keys and times "
        "a third, the counts a quarter; a failed one goes the strict way at a third of the rate",
        None, {name: round(value) for name, value in found.items()},
    )  # fmt: skip
