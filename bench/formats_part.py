"""What one core takes in of LiteLLM's payloads and of our own records: bytes to rows, without the log."""

from __future__ import annotations

import io
from functools import partial

from bench.figures import Figure, Row
from bench.ingest_validate import OPTIONS, litellm_body, parse, rate, usage_body
from ingest.usage.litellm import LiteLlm


def measure(*, quick: bool) -> Row:
    records = 5_000 if quick else 50_000
    payloads, own = litellm_body(records), usage_body(records, raw=False)
    strictly = rate(partial(_strictly, payloads))
    by_template, usage = rate(partial(parse, "litellm", payloads)), rate(partial(parse, "usage", own))
    return Row(
        "formats", "usage bytes → checked rows, one core",
        f"{records:,} records; LiteLLM: {len(payloads) // records:,} bytes each, 200 teams × 8 models, 1 in 20 failed; "
        "process time, best of three",
        (
            Figure("LiteLLM payloads", by_template, "records/s", "more", peer=strictly, peer_is="each by the strict way"),
            Figure("usage/1 NDJSON", usage, "records/s", "more"),
        ),
        "what repeats over a sender's payloads is judged once; failures and odd ones go the strict way",
        None, {"litellm": round(by_template), "litellm strictly": round(strictly), "usage": round(usage)},
    )  # fmt: skip


def _strictly(body: bytes) -> int:
    return sum(1 for _ in LiteLlm(by_template=False).rows(io.BytesIO(body), OPTIONS))
