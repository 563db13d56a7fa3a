"""Raw samples of a Prometheus-compatible HTTP API, through prometheus-api-client. Nothing here asks for a computed value."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import requests
import yaml
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from urllib3.util.retry import Retry

from core.errors import BadInput, Refused, TokenfuseError, Unavailable
from core.windows import epoch_ms, from_epoch_ms
from ingest.prometheus.settings import ASK_FOR_RAW, Access

_STATUS = re.compile(r"HTTP Status Code (\d+) \((.*)\)", re.DOTALL)
_TOO_MUCH = re.compile(r"too many samples|exceeds? .*limit|limit .*exceeded|maxSamplesPerQuery|timed out", re.IGNORECASE)


class TooMuch(Unavailable):
    """The server will not answer for so many samples at once: ask for a shorter window."""


@dataclass(frozen=True, slots=True)
class Series:
    """One stored series: its labels (``__name__`` too) and its samples (unix milliseconds, value as the server wrote it)."""

    labels: Mapping[str, str]
    points: tuple[tuple[int, str], ...]


class _Token(requests.auth.AuthBase):
    def __init__(self, access: Access) -> None:
        self._access = access

    def __call__(self, request: Any) -> Any:
        file = self._access.token_file
        request.headers["Authorization"] = f"Bearer {file.read_text().strip() if file else self._access.token}"
        return request


class PrometheusApi:
    """One server. Every method raises Unavailable when it does not answer in whole, Refused when it will not have us, BadInput
    when it does not understand the question. Not shared between threads."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._session = _session(access)
        self._connect = PrometheusConnect(
            access.url.rstrip("/"),
            session=self._session,
            auth=_auth(access),
            timeout=access.timeout_s,
            retry=Retry(total=2, backoff_factor=0.2, status_forcelist=(429, 502, 504), raise_on_status=False, redirect=0),
        )

    def close(self) -> None:
        self._connect.close()

    def now(self) -> datetime:
        """The server's own clock: windows are cut by it, so that a clock that differs from ours hides no sample."""
        found = self._ask(lambda: self._connect.custom_query("time()", params=self._params()))
        try:
            return datetime.fromtimestamp(float(found[1]), UTC)
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise BadInput("does not answer time()", field="prometheus.url", value=self._access.url) from error

    def names(self, start: datetime, end: datetime, match: str = "") -> list[str]:
        """Names of the series that have samples in the window (the server may add some from nearby)."""
        params = {"start": _seconds(start), "end": _seconds(end), **({"match[]": f"{{{match}}}"} if match else {})}
        found = self._ask(lambda: self._connect.get_label_values("__name__", params={**self._params(), **params}))
        return sorted(str(name) for name in found)

    def raw(self, matchers: str, start: datetime, end: datetime) -> list[Series]:
        """Every stored sample with start <= time < end of the series that ``{matchers}`` selects.

        Asked one millisecond wider than needed, for servers differ on whether a range holds its ends. Raises TooMuch as well.
        """
        first, last = epoch_ms(start), epoch_ms(end)
        query, params = f"{{{matchers}}}[{last - first + 1}ms]", {**self._params(), "time": _seconds(end)}
        rows = self._ask(lambda: self._connect.custom_query(query, params=params))
        try:
            return [found for row in rows if (found := _series(row, first, last)).points]
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"answers something else than raw samples: {error!r}", field="prometheus.url") from error

    def targets(self) -> list[Mapping[str, Any]]:
        """Active targets, as ``/api/v1/targets`` tells them. Raises BadInput where the API has no such page."""
        found = self._ask(lambda: self._connect.get_targets(state="active"))
        targets: list[Mapping[str, Any]] = found["activeTargets"]
        return targets

    def flags(self) -> Mapping[str, str]:
        """Command-line flags of the server, empty where it does not tell them."""
        return {str(name): str(value) for name, value in self._status("flags").items()}

    def pages(self) -> Mapping[str, tuple[str, str]]:
        """(scheme, path) of the pages each job of the server's configuration scrapes, empty where it does not tell."""
        try:
            body = yaml.safe_load(str(self._status("config").get("yaml", "")))
            rows = body.get("scrape_configs") or [] if isinstance(body, dict) else []
            return {str(r["job_name"]): (str(r.get("scheme", "http")), str(r.get("metrics_path", "/metrics"))) for r in rows}
        except (yaml.YAMLError, TypeError, KeyError, AttributeError):
            return {}

    def _status(self, what: str) -> Mapping[str, Any]:
        try:
            answer = self._session.get(
                f"{self._access.url.rstrip('/')}/api/v1/status/{what}", auth=_auth(self._access), timeout=self._access.timeout_s
            )
            found = answer.json()["data"] if answer.status_code == 200 else {}
        except (requests.RequestException, TokenfuseError, ValueError, KeyError, TypeError):
            return {}
        return found if isinstance(found, dict) else {}

    def _params(self) -> dict[str, str]:
        return {**ASK_FOR_RAW, **self._access.params}

    def _ask(self, question: Any) -> Any:
        try:
            return question()
        except PrometheusApiClientException as error:
            raise _refusal(str(error), self._access.url) from error
        except requests.exceptions.TooManyRedirects as error:
            raise Refused(f"{self._access.url} sends us elsewhere", hint="give the address it redirects to") from error
        except requests.exceptions.SSLError as error:
            raise Refused(f"{self._access.url}: {_short(error)}", hint="check ca_file, cert_file and key_file") from error
        except requests.exceptions.JSONDecodeError as error:
            raise BadInput("does not answer in JSON", field="prometheus.url", value=self._access.url) from error
        except requests.RequestException as error:
            raise Unavailable(f"{self._access.url} does not answer: {_short(error)}", hint="is Prometheus up?") from error
        except OSError as error:
            raise BadInput(f"cannot be read: {error}", field="prometheus", hint="check the files it names") from error
        except (ValueError, KeyError, TypeError) as error:
            raise BadInput(
                f"does not answer like a Prometheus: {error!r}", field="prometheus.url", value=self._access.url
            ) from error


def _session(access: Access) -> requests.Session:
    session = requests.Session()
    session.trust_env = False
    session.max_redirects = 0
    session.headers.update(access.headers)
    session.verify = str(access.ca_file) if access.ca_file else True
    if access.cert_file and access.key_file:
        session.cert = (str(access.cert_file), str(access.key_file))
    session.hooks["response"].append(_whole)
    return session


def _auth(access: Access) -> Any:
    if access.username:
        return requests.auth.HTTPBasicAuth(access.username, access.password)
    return _Token(access) if access.token or access.token_file else None


def _whole(response: requests.Response, *_: object, **__: object) -> None:
    """An answer with warnings lacks something (a store or a remote that did not answer): not taken for the whole."""
    if response.status_code == 200 and b'"warnings":[' in response.content:
        warnings = response.json().get("warnings")
        if warnings:
            raise Unavailable(f"the answer is partial: {warnings[0]}", hint="see that every store behind the query is up")


def _refusal(text: str, url: str) -> TokenfuseError:
    found = _STATUS.search(text)
    status, body = (int(found[1]), found[2][:300]) if found else (0, text[:300])
    if status in (401, 403):
        return Refused(f"{url} refuses us with {status}", hint="check token, username, headers and certificates")
    if status == 404:
        return BadInput("has no such page", field="prometheus.url", value=url, hint="the address is what /api/v1/query follows")
    if _TOO_MUCH.search(body) and status in (400, 413, 422, 429, 500, 503):
        return TooMuch(f"{url}: {body}")
    if status in (400, 422):
        return BadInput(f"the server does not understand the query: {body}", field="prometheus.match")
    return Unavailable(f"{url} answers {status}: {body}")


def _series(row: Mapping[str, Any], first_ms: int, last_ms: int) -> Series:
    points = ((round(at * 1000), str(value)) for at, value in row["values"])
    inside = sorted({at: value for at, value in points if first_ms <= at < last_ms}.items())
    return Series({str(k): str(v) for k, v in row["metric"].items()}, tuple(inside))


def _seconds(at: datetime) -> str:
    ms = epoch_ms(at)
    return f"{ms // 1000}.{ms % 1000:03d}"


def _short(error: Exception) -> str:
    """The innermost reason of a chain of wrapped ones."""
    return str(error).split(": ")[-1].strip("\"')(")[:200]


def split(start: datetime, end: datetime) -> Sequence[tuple[datetime, datetime]]:
    """The window in two halves, or nothing when it is shorter than two seconds."""
    middle = from_epoch_ms((epoch_ms(start) + epoch_ms(end)) // 2)
    return ((start, middle), (middle, end)) if end - start >= timedelta(seconds=2) else ()
