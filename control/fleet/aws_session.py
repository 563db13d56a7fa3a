"""Clients of Amazon's services and their refusals in our words. Credentials come from the usual AWS settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from core.errors import BadInput, Refused, TokenfuseError, Unavailable
from core.tag_plan import partition_of

ATTEMPTS = 8
DENIED = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "403", "Forbidden", "NotAuthorized"})
BAD_KEYS = frozenset({
    "InvalidClientTokenId", "UnrecognizedClientException", "ExpiredToken", "ExpiredTokenException", "InvalidAccessKeyId",
    "SignatureDoesNotMatch", "InvalidSignatureException",
})  # fmt: skip
THROTTLED = frozenset(
    {"ThrottlingException", "Throttling", "ThrottledException", "LimitExceededException", "TooManyRequestsException"}
)
BILLING_REGION = {"aws": "us-east-1", "aws-cn": "cn-northwest-1"}
"""Where each partition answers for cost and billing (AWS General Reference)."""
Clients = Callable[[str, str], Any]
"""(service, region) -> boto3 client. A test gives one with a stub in it."""


def aws_clients(endpoint_url: str | None = None) -> Clients:
    """Clients of this process's AWS settings; ``endpoint_url`` stands for all services (a private endpoint, a test)."""
    import boto3  # 0.3 s to import, for this alone
    from botocore.config import Config

    session, made = boto3.Session(), {}
    config = Config(retries={"mode": "standard", "total_max_attempts": ATTEMPTS})

    def client(service: str, region: str) -> Any:
        if (service, region) not in made:
            with aws_words(f"{service} in {region}", ""):
                made[service, region] = session.client(service, region_name=region, endpoint_url=endpoint_url, config=config)
        return made[service, region]

    return client


def default_region() -> str:
    """The region of the usual AWS settings, '' without one."""
    import boto3

    return boto3.Session().region_name or ""


def billing_region(region: str) -> str:
    """The region that answers for cost and billing in the partition of ``region``. Raises BadInput where there is none."""
    partition = partition_of(region)
    if partition not in BILLING_REGION:
        raise BadInput(f"partition {partition} has no Cost Explorer of its own", field="--region", value=region)
    return BILLING_REGION[partition]


@contextmanager
def aws_words(what: str, permission: str) -> Iterator[None]:
    """Amazon's errors as ours, naming ``what`` was asked and the ``permission`` it takes."""
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, ParamValidationError

    try:
        yield
    except NoCredentialsError as error:
        hint = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or a role"
        raise BadInput("there are no AWS credentials", where=what, hint=hint) from error
    except ClientError as error:
        raise _said(error, what, permission) from error
    except ParamValidationError as error:
        raise BadInput(f"is not what the service takes: {str(error)[:300]}", where=what) from error
    except BotoCoreError as error:
        raise Unavailable(f"{what}: cannot be reached ({type(error).__name__})", hint=str(error)[:200]) from error


def _said(error: Any, what: str, permission: str) -> TokenfuseError:
    said = error.response.get("Error", {})
    code, message = str(said.get("Code", "")), str(said.get("Message", ""))[:200]
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if code in DENIED or (status == 403 and code not in BAD_KEYS):
        return Refused(f"{what}: access is denied ({code})", hint=f"allow {permission} (deploy/aws)")
    if code in BAD_KEYS:
        return BadInput(f"the AWS credentials are refused ({code})", where=what, hint="renew them: " + message)
    if code in THROTTLED or status >= 500:
        return Unavailable(f"{what}: the service is busy ({code}), {ATTEMPTS} tries failed", hint="run it again later")
    return BadInput(f"is refused ({code}): {message}", where=what)
