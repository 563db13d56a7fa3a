"""What a stream run needs to know. ``cli`` fills it; ``python -m streaming.run FILE`` reads it from JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self

from core.errors import BadInput

StateBackend = Literal["rocksdb", "hashmap"]


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """Units are in the names. ``web_port`` 0 takes any free port; ``load`` false leaves the loader to another process."""

    data_dir: Path
    database_url: str
    parallelism: int = 2
    checkpoint_ms: int = 1_000
    discovery_ms: int = 200
    dedupe_horizon_days: int = 7
    state_backend: StateBackend = "rocksdb"
    web_port: int = 0
    python: str = sys.executable
    heap_mb: int = 2_048
    load: bool = True
    segments_per_epoch: int = 50_000
    epoch_hours: int = 24
    keep_delta_days: int = 35
    keep_archive_days: int = 400

    def __post_init__(self) -> None:
        for name in ("parallelism", "checkpoint_ms", "discovery_ms", "dedupe_horizon_days", "heap_mb", "segments_per_epoch"):
            if getattr(self, name) < 1:
                raise BadInput("must be at least 1", field=name, value=getattr(self, name))
        if self.state_backend not in ("rocksdb", "hashmap"):
            raise BadInput("must be rocksdb or hashmap", field="state_backend", value=self.state_backend)

    @property
    def log(self) -> Path:
        return self.data_dir / "log"

    @property
    def deltas(self) -> Path:
        return self.data_dir / "deltas"

    @property
    def checkpoints(self) -> Path:
        return self.data_dir / "checkpoints"

    @property
    def run(self) -> Path:
        return self.data_dir / "run"

    def to_json(self) -> str:
        return json.dumps(asdict(self) | {"data_dir": str(self.data_dir)}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Self:
        fields: dict[str, Any] = json.loads(text)
        try:
            return cls(**(fields | {"data_dir": Path(fields["data_dir"])}))
        except (TypeError, KeyError) as error:
            raise BadInput(f"not a settings file of this version: {error}", field="settings") from error


def scratch_folder(settings: StreamSettings) -> Path:
    """Flink's working files; emptied at each start."""
    return settings.run / "flink-tmp"
