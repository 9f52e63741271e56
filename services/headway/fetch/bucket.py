"""A bucket that speaks S3. AWS_ variables say where and who: AWS_REGION, AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID and
AWS_SECRET_ACCESS_KEY, a web identity, or AWS_SKIP_SIGNATURE=true for one that everybody may read."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from obstore.exceptions import (
    BaseError,
    PreconditionError,
)
from obstore.exceptions import (
    NotFoundError as NoSuchObjectError,
)
from obstore.exceptions import (
    PermissionDeniedError as RefusedError,
)
from obstore.exceptions import (
    UnauthenticatedError as UnknownCallerError,
)
from obstore.store import S3Store

from headway.core.errors import FailedPreconditionError, NotFoundError, PermissionDeniedError, UnavailableError
from headway.core.model_uri import ModelUri
from headway.fetch.selection import select
from headway.fetch.source import RemoteFile

if TYPE_CHECKING:
    from obstore import ObjectMeta

# Codes of S3, which reach us as text where a bucket is listed.
_MISSING = "<Code>NoSuchBucket</Code>"
_REFUSALS = ("<Code>AccessDenied</Code>", "<Code>InvalidAccessKeyId</Code>", "<Code>SignatureDoesNotMatch</Code>")
_PART_BYTES = 64 << 20
"""What is asked for at once: all that is lost where the bucket breaks off."""


class BucketSource:
    """The objects below a prefix, as they are now."""

    def __init__(self, uri: ModelUri) -> None:
        self._uri = uri
        bucket, _, self._prefix = uri.location.partition("/")
        with _faults(uri):
            self._store = S3Store(bucket, client_options={"allow_http": _is_plain()})
            found = [each for page in self._store.list(self._prefix or None) for each in page]
        objects = {each["path"].removeprefix(f"{self._prefix}/"): each for each in found}
        wanted = sorted(select(objects))
        if not wanted:
            raise NotFoundError(
                f"{uri} has no files of a model.", hint="Give the prefix that its config.json is right below."
            )
        self._tags = {name: objects[name]["e_tag"] for name in wanted}
        self.version = hashlib.sha256(repr(sorted(self._tags.items())).encode()).hexdigest()
        self.files = tuple(_file(name, objects[name]) for name in wanted)

    def download(self, file: RemoteFile, directory: Path) -> None:
        path = directory / file.name
        path.parent.mkdir(exist_ok=True)
        with path.open("ab") as out:
            while (start := out.tell()) < file.num_bytes:
                end = min(start + _PART_BYTES, file.num_bytes)
                with _faults(self._uri):
                    part = self._store.get(
                        file.key, options={"range": (start, end), "if_match": self._tags[file.name]}
                    ).bytes()
                out.write(part)


def _file(name: str, found: "ObjectMeta") -> RemoteFile:
    return RemoteFile(name=name, key=found["path"], num_bytes=found["size"])


def _is_plain() -> bool:
    """Whether a server was named that encrypts nothing."""
    return os.environ.get("AWS_ENDPOINT_URL", os.environ.get("AWS_ENDPOINT", "")).startswith("http://")


def _no_such(uri: ModelUri) -> NotFoundError:
    return NotFoundError(f"There is no {uri}.", hint="Check the name of the bucket, and AWS_REGION.")


def _refused(uri: ModelUri) -> PermissionDeniedError:
    return PermissionDeniedError(
        f"The bucket of {uri} is not open to this account.",
        hint="Give AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY that may list and read it.",
    )


@contextmanager
def _faults(uri: ModelUri) -> Iterator[None]:
    try:
        yield
    except NoSuchObjectError:
        raise _no_such(uri) from None
    except (RefusedError, UnknownCallerError):
        raise _refused(uri) from None
    except PreconditionError:
        raise FailedPreconditionError(
            f"A file of {uri} was replaced while it was fetched.", hint="Try again once all are there."
        ) from None
    except BaseError as error:
        told = str(error)
        if _MISSING in told:
            raise _no_such(uri) from None
        if any(code in told for code in _REFUSALS):
            raise _refused(uri) from None
        raise UnavailableError(
            f"{uri} cannot be read: {told.partition(chr(10))[0]}.",
            hint="AWS_REGION, AWS_ENDPOINT_URL and credentials say where it is and who asks; AWS_SKIP_SIGNATURE=true "
            "reads what is open to all.",
        ) from None
