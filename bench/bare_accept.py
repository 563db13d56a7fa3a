"""The least that acceptance can cost: an endpoint that only writes the body and syncs it."""

from __future__ import annotations

import os
from pathlib import Path

import uvicorn
from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse


def serve(folder: str, port: int, records: int) -> None:
    """A FastAPI app on uvicorn: body → one write and one fdatasync → 202."""
    app = FastAPI()
    file = os.open(Path(folder) / "bodies", os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def keep(body: bytes) -> None:
        os.write(file, body)
        os.fdatasync(file)

    @app.get("/readyz")
    def ready() -> dict[str, bool]:
        return {"ready": True}

    @app.post("/v1/usage")
    async def accept(request: Request) -> JSONResponse:
        await run_in_threadpool(keep, await request.body())
        return JSONResponse({"accepted": records}, 202)

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", access_log=False)
