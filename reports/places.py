"""Where an export goes: a folder, or a bucket. Data first, the manifest last: what no manifest names is not part of it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from core.errors import BadInput, Refused, Unavailable

ATTEMPTS = 8
_DENIED = frozenset({"AccessDenied", "403", "Forbidden", "InvalidAccessKeyId", "SignatureDoesNotMatch"})
_WRONG_REGION = frozenset({"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "301"})


class Place(Protocol):
    """Keys are relative to the place, with forward slashes."""

    def name(self, key: str) -> str: ...
    def reference(self, key: str) -> str:
        """How a manifest names a file, ending in the key: a URL, or relative to the folder, which may be moved."""
        ...

    def workspace(self) -> Path:
        """A folder to write in; the caller removes it."""
        ...

    def put(self, path: Path, key: str) -> None:
        """Takes the file at once: a reader sees the former object, or the whole new one."""
        ...

    def read(self, key: str) -> bytes | None: ...
    def remove(self, key: str) -> None: ...


class Folder:
    def __init__(self, root: Path) -> None:
        if root.exists() and not root.is_dir():
            raise BadInput("is a file", field="--out", value=str(root), hint="name a folder")
        self._root = root

    def name(self, key: str) -> str:
        return str(self._root / key)

    def reference(self, key: str) -> str:
        return f"./{key}"

    def workspace(self) -> Path:
        """Inside the folder, so that a finished file moves into its place at once; hidden, so that nobody reads it before."""
        self._root.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=".writing-", dir=self._root))

    def put(self, path: Path, key: str) -> None:
        target = self._root / key
        target.parent.mkdir(parents=True, exist_ok=True)
        with path.open("rb") as written:
            os.fsync(written.fileno())
        path.replace(target)

    def read(self, key: str) -> bytes | None:
        target = self._root / key
        return target.read_bytes() if target.exists() else None

    def remove(self, key: str) -> None:
        target = self._root / key
        target.unlink(missing_ok=True)
        if target.parent != self._root and not any(target.parent.iterdir()):
            target.parent.rmdir()


class Bucket:
    """``s3://BUCKET/PREFIX``; region, partition and credentials from the usual AWS settings, or the caller."""

    def __init__(self, url: str, endpoint_url: str | None = None, region: str | None = None) -> None:
        parts = urlsplit(url)
        if not parts.netloc:
            raise BadInput("names no bucket", field="--out", value=url, hint="write s3://BUCKET/PREFIX")
        import boto3  # 0.3 s to import, for this alone
        from botocore.config import Config

        config = Config(retries={"mode": "standard", "max_attempts": ATTEMPTS}, request_checksum_calculation="when_required")
        self._client: Any = boto3.Session().client("s3", endpoint_url=endpoint_url, region_name=region, config=config)
        self._bucket, self._prefix = parts.netloc, parts.path.strip("/")

    def name(self, key: str) -> str:
        return f"s3://{self._bucket}/{self._key(key)}"

    def reference(self, key: str) -> str:
        return self.name(key)

    def workspace(self) -> Path:
        return Path(tempfile.mkdtemp(prefix="tokenfuse-export-"))

    def put(self, path: Path, key: str) -> None:
        with self._words(key):
            self._client.upload_file(str(path), self._bucket, self._key(key))

    def read(self, key: str) -> bytes | None:
        from botocore.exceptions import ClientError

        try:
            with self._words(key, absent_is_fine=True):
                body: bytes = self._client.get_object(Bucket=self._bucket, Key=self._key(key))["Body"].read()
        except ClientError:
            return None
        return body

    def remove(self, key: str) -> None:
        with self._words(key):
            self._client.delete_object(Bucket=self._bucket, Key=self._key(key))

    def _key(self, key: str) -> str:
        return "/".join(part for part in (self._prefix, key) if part)

    @contextmanager
    def _words(self, key: str, *, absent_is_fine: bool = False) -> Iterator[None]:
        """The store's refusals in our words."""
        from boto3.exceptions import S3UploadFailedError
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

        place = self.name(key)
        try:
            yield
        except NoCredentialsError as error:
            hint = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or a role"
            raise BadInput("there are no credentials for the bucket", where=place, hint=hint) from error
        except S3UploadFailedError as error:
            cause = error.__context__
            raise _refusal(cause, place) if isinstance(cause, ClientError) else Unavailable(f"{place}: {error}") from error
        except ClientError as error:
            if absent_is_fine and error.response.get("Error", {}).get("Code") in ("NoSuchKey", "404"):
                raise
            raise _refusal(error, place) from error
        except BotoCoreError as error:
            raise Unavailable(f"{place} cannot be reached ({type(error).__name__})", hint=str(error)[:200]) from error


def _refusal(error: Any, place: str) -> BadInput | Refused | Unavailable:
    said, status = error.response.get("Error", {}), int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    code = str(said.get("Code", ""))
    if status >= 500 or code == "SlowDown":
        return Unavailable(f"{place}: the store is busy ({code or status}), {ATTEMPTS} tries failed", hint="run it again later")
    if code in _WRONG_REGION:
        return BadInput("the bucket lies in another region", where=place, field="--region", hint="pass the bucket's region")
    if code in _DENIED or status == 403:
        hint = "an export needs s3:PutObject, s3:GetObject and s3:DeleteObject on the prefix, and s3:ListBucket on the bucket"
        return Refused(f"{place}: access is denied ({code})", hint=hint)
    if code == "NoSuchBucket":
        return BadInput("there is no such bucket", where=place, field="--out", hint="check its name and the account")
    return BadInput(f"the bucket refuses ({code or status})", where=place, hint=str(said.get("Message", ""))[:200])


@contextmanager
def working(place: Place) -> Iterator[Path]:
    """A workspace of the place, removed whatever happens."""
    folder = place.workspace()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def place_of(out: str, endpoint_url: str | None = None, region: str | None = None) -> Place:
    """A folder, or ``s3://BUCKET/PREFIX``. Raises BadInput for neither."""
    if out.startswith("s3://"):
        return Bucket(out, endpoint_url, region)
    if "://" in out:
        raise BadInput("is neither a folder nor a bucket", field="--out", value=out, hint="name a folder or s3://BUCKET/PREFIX")
    return Folder(Path(out))
