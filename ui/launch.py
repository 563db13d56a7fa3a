"""How the pages were started: ``streamlit run ui/app.py -- --api-url URL [--token-file FILE] [--demo]``."""

from __future__ import annotations

import argparse
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
    """Parse the words after ``--``; words that are not ours are left to Streamlit."""
    parser = argparse.ArgumentParser(prog="streamlit run ui/app.py --", allow_abbrev=False, add_help=False)
    parser.add_argument("--api-url", default=Launch.api_url)
    parser.add_argument("--token-file", type=Path)
    parser.add_argument("--demo", action="store_true")
    found, _ = parser.parse_known_args(sys.argv[1:] if arguments is None else list(arguments))
    return Launch(found.api_url.rstrip("/"), found.token_file, found.demo)
