"""Health and readiness."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field


class HealthOut(BaseModel):
    status: Literal["ok"]


class Check(BaseModel):
    name: str = Field(examples=["database"])
    ok: bool
    detail: str = Field("", description="Empty when ok, else what is wrong and what to do.")


class ReadyOut(BaseModel):
    status: Literal["ok", "not_ready"]
    checks: list[Check]
