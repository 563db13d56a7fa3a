"""Bills in a bucket. Region and partition come from the usual AWS settings, or the caller: nothing here names either."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from core.errors import BadInput, Refused, Unavailable
from ingest.billing.delivery import Stored

ATTEMPTS = 8
THROTTLED = frozenset({"SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "503", "ServiceUnavailable"})
DENIED = frozenset({"AccessDenied", "403", "Forbidden", "AllAccessDisabled", "InvalidAccessKeyId", "SignatureDoesNotMatch"})
WRONG_REGION = frozenset({"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "301"})
ABSENT = frozenset({"NoSuchKey", "404", "NotFound"})


@dataclass(frozen=True, slots=True)
class S3Settings:
    endpoint_url: str | None = None
    region: str | None = None


class S3Files:
    """``s3://BUCKET/PREFIX``. Keys are the bucket's own; every page of a listing is read; throttled calls are tried again with
    growing waits."""

    def __init__(self, url: str, settings: S3Settings) -> None:
        parts = urlsplit(url)
        if not parts.netloc:
            raise BadInput("names no bucket", field="SOURCE", value=url, hint="write s3://BUCKET/PREFIX")
        import boto3  # 0.3 s to import, for this alone
        from botocore.config import Config

        retries = {"mode": "standard", "total_max_attempts": ATTEMPTS}
        config = Config(retries=retries, response_checksum_validation="when_required")
        self._client: Any = boto3.Session().client(
            "s3", endpoint_url=settings.endpoint_url, region_name=settings.region, config=config
        )
        self._bucket, self._prefix = parts.netloc, parts.path.lstrip("/")

    @property
    def endpoint(self) -> str:
        """The host that is asked: it follows from region and partition."""
        url: str = self._client.meta.endpoint_url
        return url

    def listed(self) -> Sequence[Stored]:
        with self._words(self._prefix):
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=self._prefix)
            found = [
                Stored(item["Key"], item["Size"], item.get("ETag", "").strip('"'), item["LastModified"].timestamp())
                for page in pages
                for item in page.get("Contents", ())
                if not item["Key"].endswith("/")
            ]
        return sorted(found, key=lambda stored: stored.key)

    def read(self, key: str) -> bytes:
        with self._words(key):
            body: bytes = self._client.get_object(Bucket=self._bucket, Key=key)["Body"].read()
        return body

    def fetch(self, key: str, folder: Path) -> Path:
        target = folder / key.rpartition("/")[2]
        with self._words(key):
            self._client.download_file(self._bucket, key, str(target))
        return target

    def name(self, key: str) -> str:
        return f"s3://{self._bucket}/{key or self._prefix}"

    @contextmanager
    def _words(self, key: str) -> Iterator[None]:
        """The store's refusals in our words."""
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

        place = self.name(key)
        try:
            yield
        except NoCredentialsError as error:
            hint = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or a role"
            raise BadInput("there are no credentials for the bucket", where=place, hint=hint) from error
        except ClientError as error:
            raise _refusal(error, place) from error
        except BotoCoreError as error:
            raise Unavailable(f"{place} cannot be reached ({type(error).__name__})", hint=str(error)[:200]) from error


def _refusal(error: Any, place: str) -> BadInput | Refused | Unavailable:
    said, meta = error.response.get("Error", {}), error.response.get("ResponseMetadata", {})
    code, status = str(said.get("Code", "")), int(meta.get("HTTPStatusCode", 0))
    if code in THROTTLED or status >= 500:
        return Unavailable(f"{place}: the store is busy ({code or status}), {ATTEMPTS} tries failed", hint="run it again later")
    if code in WRONG_REGION:
        region = said.get("Region") or meta.get("HTTPHeaders", {}).get("x-amz-bucket-region", "")
        hint = f"pass --region {region}" if region else "pass --region with the bucket's region"
        return BadInput("the bucket lies in another region", where=place, field="--region", hint=hint)
    if code in DENIED or status == 403:
        hint = (
            "its reader needs s3:ListBucket on the bucket and s3:GetObject on the prefix (and kms:Decrypt where it is encrypted)"
        )
        return Refused(f"{place}: access is denied ({code})", hint=hint)
    if code == "NoSuchBucket":
        return BadInput("there is no such bucket", where=place, hint="check its name and the account")
    if code in ABSENT:
        return BadInput("the object is gone", where=place, hint="the delivery was replaced while it was read: run it again")
    return BadInput(f"the bucket refuses ({code or status})", where=place, hint=str(said.get("Message", ""))[:200])
