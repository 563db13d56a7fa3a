"""The OpenAPI document, corrected: this API answers a wrong request with 400 and its own error body, never FastAPI's 422."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI

FOREIGN = ("HTTPValidationError", "ValidationError")


def corrected(generate: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    """``generate`` without the framework's own validation answers."""

    def openapi() -> dict[str, Any]:
        document = generate()
        for methods in document["paths"].values():
            for operation in methods.values():
                if FOREIGN[0] in str(operation["responses"].get("422", "")):
                    del operation["responses"]["422"]
        for name in FOREIGN:
            document["components"]["schemas"].pop(name, None)
        return document

    return openapi


def correct(app: FastAPI) -> None:
    """Serve the corrected document from now on."""
    app.openapi = corrected(app.openapi)  # type: ignore[method-assign]
