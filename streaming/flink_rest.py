"""The two questions the supervisor asks Flink's REST endpoint."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class FlinkRest:
    """Flink's web port on this machine. An endpoint that does not answer yields None: the job is starting or gone."""

    port: int

    def job(self) -> tuple[str, str] | None:
        """(job id, state) of the newest job."""
        answer = self._get("/jobs/overview")
        jobs = answer["jobs"] if answer else []
        return (jobs[0]["jid"], jobs[0]["state"]) if jobs else None

    def last_checkpoint(self) -> int | None:
        """The id of the newest completed checkpoint, 0 before the first."""
        job = self.job()
        answer = self._get(f"/jobs/{job[0]}/checkpoints") if job else None
        if answer is None:
            return None
        done = answer["latest"]["completed"]
        return int(done["id"]) if done else 0

    def _get(self, path: str) -> dict[str, Any] | None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=TIMEOUT_S) as response:
                found: dict[str, Any] = json.load(response)
                return found
        except (urllib.error.URLError, TimeoutError, ConnectionError, ValueError):
            return None
