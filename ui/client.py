"""The pages' only way to data: HTTP to the API with the signed-in person's token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

TIMEOUT_S = 15
LONG_TIMEOUT_S = 300


class ApiProblem(Exception):
    """Something the person should read. ``signed_out`` means the token is not (or no longer) good."""

    def __init__(self, message: str, *, hint: str = "", signed_out: bool = False) -> None:
        super().__init__(message)
        self.message, self.hint, self.signed_out = message, hint, signed_out


def connect(base_url: str) -> httpx.Client:
    """The connections that all signed-in people share; it carries no token."""
    return httpx.Client(base_url=base_url, timeout=httpx.Timeout(TIMEOUT_S, connect=3))


class Client:
    """Reads and changes of the API as plain JSON values (money stays a decimal string)."""

    def __init__(self, http: httpx.Client, token: str) -> None:
        self._http, self._token = http, token

    def overview(self, params: Mapping[str, str]) -> dict[str, Any]:
        """``GET /v1/overview``."""
        return self._get("/v1/overview", params)

    def unit_cost(self, params: Mapping[str, str]) -> dict[str, Any]:
        """``GET /v1/unit-cost``."""
        return self._get("/v1/unit-cost", params)

    def explain(self, params: Mapping[str, str]) -> dict[str, Any]:
        """``GET /v1/explain``."""
        return self._get("/v1/explain", params)

    def reconcile(self, params: Mapping[str, str]) -> dict[str, Any]:
        """``GET /v1/reconcile``."""
        return self._get("/v1/reconcile", params)

    def compare(self, params: Mapping[str, str]) -> dict[str, Any]:
        """``GET /v1/compare``."""
        return self._get("/v1/compare", params)

    def unpriced(self, params: Mapping[str, str]) -> dict[str, Any]:
        """``GET /v1/unpriced``."""
        return self._get("/v1/unpriced", params)

    def ledger(self, params: Mapping[str, str]) -> dict[str, Any]:
        """``GET /v1/ledger``."""
        return self._get("/v1/ledger", params)

    def heat_map(self, params: Mapping[str, str]) -> dict[str, Any]:
        """``GET /v1/heat-map``."""
        return self._get("/v1/heat-map", params)

    def efficiency(self, params: Mapping[str, str]) -> dict[str, Any]:
        """``GET /v1/efficiency``."""
        return self._get("/v1/efficiency", params)

    def fleet_checks(self, params: Mapping[str, str]) -> dict[str, Any]:
        """``GET /v1/fleet/checks``."""
        return self._get("/v1/fleet/checks", params)

    def coverage(self, params: Mapping[str, str]) -> dict[str, Any]:
        """``GET /v1/coverage``."""
        return self._get("/v1/coverage", params)

    def quality(self, params: Mapping[str, str]) -> dict[str, Any]:
        """``GET /v1/quality``."""
        return self._get("/v1/quality", params)

    def tenants(self, params: Mapping[str, str]) -> dict[str, Any]:
        """``GET /v1/identity/tenants``."""
        return self._get("/v1/identity/tenants", params)

    def identity_rules(self, params: Mapping[str, str]) -> dict[str, Any]:
        """``GET /v1/identity/rules``."""
        return self._get("/v1/identity/rules", params)

    def identity_versions(self, params: Mapping[str, str]) -> dict[str, Any]:
        """``GET /v1/identity/rules/versions``."""
        return self._get("/v1/identity/rules/versions", params)

    def identity_preview(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """``POST /v1/identity/preview``: reads the archive and changes nothing."""
        return self._send("POST", "/v1/identity/preview", json=dict(body), timeout=LONG_TIMEOUT_S)

    def publish_rules(self, body: Mapping[str, Any], version: int) -> dict[str, Any]:
        """``PUT /v1/identity/rules``: the next version after ``version``, which must be the newest."""
        return self._send("PUT", "/v1/identity/rules", json=dict(body), headers={"If-Match": f'"{version}"'})

    def _get(self, path: str, params: Mapping[str, str]) -> dict[str, Any]:
        return self._send("GET", path, params=dict(params))

    def _send(self, method: str, path: str, *, headers: Mapping[str, str] | None = None, **rest: Any) -> dict[str, Any]:
        try:
            answer = self._http.request(
                method, path, headers={"Authorization": f"Bearer {self._token}", **(headers or {})}, **rest
            )
        except httpx.TimeoutException as error:
            hint = "Choose a shorter time range, then try again."
            raise ApiProblem(f"The API took longer than {rest.get('timeout', TIMEOUT_S)} seconds.", hint=hint) from error
        except httpx.HTTPError as error:
            hint = "Is it running? `tokenfuse doctor` on the server says what is wrong."
            raise ApiProblem("The Tokenfuse API cannot be reached.", hint=hint) from error
        return _body(answer)


def _body(answer: httpx.Response) -> dict[str, Any]:
    try:
        body = answer.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        hint = f"It said {answer.status_code}. Does --api-url name the Tokenfuse API?"
        raise ApiProblem("Something that is not the Tokenfuse API answered.", hint=hint)
    if answer.is_success:
        return body
    error = body.get("error")
    raise _problem(answer.status_code, error if isinstance(error, dict) else {})


def _problem(status: int, error: Mapping[str, Any]) -> ApiProblem:
    said, hint = str(error.get("message") or ""), str(error.get("hint") or "")
    if status == 401:
        return ApiProblem("This token is not accepted: it is wrong, expired or revoked.", hint=hint or said, signed_out=True)
    if status == 403:
        return ApiProblem(f"This token may not do that{': ' if said else '.'}{said}", hint=hint)
    named = f"{error['field']}: " if error.get("field") else ""
    return ApiProblem(f"{named}{said}" if said else f"The API answered {status}.", hint=hint)
