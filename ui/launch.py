"""How the pages were started: ``streamlit run ui/app.py -- --api-url URL [--token-file FILE]``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Launch:
    """``token_file`` signs everybody in with one token: for the demo on this machine only."""

    api_url: str = "http://127.0.0.1:8700"
    token_file: Path | None = None
    demo: bool = False


def read_launch(arguments: Sequence[str] | None = None) -> Launch:
    """Parse the words after ``--``; unknown words are ignored (Streamlit has its own)."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    values = {words[i]: words[i + 1] for i in range(len(words) - 1) if words[i].startswith("--")}
    token_file = values.get("--token-file")
    return Launch(
        values.get("--api-url", Launch.api_url).rstrip("/"), Path(token_file) if token_file else None, "--demo" in words
    )
