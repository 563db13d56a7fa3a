"""The pages' only way to data: HTTP to the API with the signed-in person's token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx


class ApiProblem(Exception):
    """Something the person should read. ``signed_out`` means the token is not (or no longer) good."""

    def __init__(self, message: str, *, hint: str = "", signed_out: bool = False) -> None:
        super().__init__(message)
        self.message, self.hint, self.signed_out = message, hint, signed_out


class Client:
    """Reads of the API as plain JSON values (money stays a decimal string)."""

    def __init__(self, base_url: str, token: str, transport: httpx.BaseTransport | None = None) -> None:
        self._http = httpx.Client(
            base_url=base_url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=httpx.Timeout(15, connect=3),
            transport=transport,
        )

    def overview(self, params: Mapping[str, str]) -> dict[str, Any]:
        return self._get("/v1/overview", params)

    def unit_cost(self, params: Mapping[str, str]) -> dict[str, Any]:
        return self._get("/v1/unit-cost", params)

    def coverage(self, params: Mapping[str, str]) -> dict[str, Any]:
        return self._get("/v1/coverage", params)

    def _get(self, path: str, params: Mapping[str, str]) -> dict[str, Any]:
        try:
            answer = self._http.get(path, params=dict(params))
        except httpx.TimeoutException as error:
            raise ApiProblem(
                "The API took longer than 15 seconds.", hint="Choose a shorter time range, then try again."
            ) from error
        except httpx.HTTPError as error:
            raise ApiProblem(
                "The Tokenfuse API cannot be reached.", hint="Is it running? `tokenfuse doctor` on the server says what is wrong."
            ) from error
        return _body(answer)


def _body(answer: httpx.Response) -> dict[str, Any]:
    try:
        body = answer.json()
    except ValueError:
        body = {}
    if answer.is_success and isinstance(body, dict):
        return body
    error = body.get("error", {}) if isinstance(body, dict) else {}
    if answer.status_code in (401, 403):
        message = "This token is not accepted." if answer.status_code == 401 else "This token may not read that."
        raise ApiProblem(message, hint=error.get("message", ""), signed_out=answer.status_code == 401)
    raise ApiProblem(error.get("message") or f"The API answered {answer.status_code}.", hint=error.get("hint", ""))
