"""Where a model's files can be fetched from: a name on Hugging Face's hub, in a bucket, or in a registry of images."""

import hashlib
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from headway.core.errors import InvalidArgumentError

_PART = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_REPOSITORY = re.compile(rf"{_PART}(/{_PART})?")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/.*)?")
_IMAGE = re.compile(
    r"(?P<image>(localhost|[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+|[A-Za-z0-9.-]+(?=:[0-9]))(:[0-9]+)?(/[a-z0-9][a-z0-9._-]*)+)"
    r"(:(?P<tag>\w[\w.-]{0,127}))?(@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_REVISION = re.compile(r"[\w][\w./:+-]*")
_SLUG_CHARS = 40
_HASH_CHARS = 10


class UriScheme(StrEnum):
    """Kinds of places."""

    HF = "hf"
    S3 = "s3"
    OCI = "oci"


_FORMS = {
    UriScheme.HF: "hf://ORGANISATION/NAME, with @REVISION behind it where another than main is meant",
    UriScheme.S3: "s3://BUCKET/PREFIX",
    UriScheme.OCI: "oci://REGISTRY/REPOSITORY, with :TAG or @sha256:DIGEST behind it",
}
_DEFAULT_REVISIONS = {UriScheme.HF: "main", UriScheme.S3: "", UriScheme.OCI: "latest"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUri:
    """Attributes:
    location: what follows the scheme, without a revision: ORGANISATION/NAME, BUCKET/PREFIX or REGISTRY/REPOSITORY.
    revision: a branch, tag or commit of the hub, a tag or digest of a registry; empty for a bucket, which has none.
    """

    scheme: UriScheme
    location: str
    revision: str

    @classmethod
    def parse(cls, text: str, *, revision: str = "") -> Self:
        """Reads `hf://...`, `s3://...` or `oci://...`.

        Args:
            revision: told beside it; empty for what the text has, or else the default.

        Raises:
            InvalidArgumentError: it is none of these, or tells of two revisions.
        """
        name, found, rest = text.partition("://")
        if not found or name not in set(UriScheme):
            raise InvalidArgumentError(
                f"{text} is nowhere that files are fetched from.", hint=f"Give {'; or '.join(_FORMS.values())}."
            )
        scheme = UriScheme(name)
        location, told = _split(scheme, rest, text)
        if revision and scheme is UriScheme.S3:
            raise InvalidArgumentError(
                f"{text} has no revisions: a bucket holds what was put there last.",
                hint="Leave the revision out; say which files are meant by their digest, sha256.",
                field="revision",
            )
        if revision and told and revision != told:
            raise InvalidArgumentError(
                f"{text} and the revision {revision} contradict each other.", hint="Give one.", field="revision"
            )
        if revision and not _REVISION.fullmatch(revision):
            raise InvalidArgumentError(f"{revision} is no revision.", field="revision")
        return cls(scheme=scheme, location=location, revision=revision or told or _DEFAULT_REVISIONS[scheme])

    def __str__(self) -> str:
        separator = ":" if self.scheme is UriScheme.OCI and not self.revision.startswith("sha256:") else "@"
        return f"{self.scheme}://{self.location}{separator if self.revision else ''}{self.revision}"

    @property
    def name(self) -> str:
        """The last part of its location: what somebody would call the model."""
        return self.location.rstrip("/").rpartition("/")[2] or self.location

    @property
    def directory_name(self) -> str:
        """One that no other place or revision has."""
        slug = re.sub(r"[^A-Za-z0-9._-]", "-", self.name)[:_SLUG_CHARS].strip(".-")
        return f"{slug}-{hashlib.sha256(str(self).encode()).hexdigest()[:_HASH_CHARS]}"


def is_model_uri(text: str) -> bool:
    """Whether a text begins as a place does that files are fetched from."""
    return text.startswith(tuple(f"{scheme}://" for scheme in UriScheme))


def _split(scheme: UriScheme, rest: str, text: str) -> tuple[str, str]:
    """Location and revision; the latter is empty where none is told."""
    refused = InvalidArgumentError(f"{text} names no model.", hint=f"Give {_FORMS[scheme]}.")
    if scheme is UriScheme.S3:
        if not _BUCKET.fullmatch(rest) or ".." in rest.split("/"):
            raise refused
        return rest.rstrip("/"), ""
    if scheme is UriScheme.OCI:
        if not (found := _IMAGE.fullmatch(rest)):
            raise refused
        return found["image"], found["digest"] or found["tag"] or ""
    location, at, revision = rest.partition("@")
    if not _REPOSITORY.fullmatch(location) or (at and not _REVISION.fullmatch(revision)):
        raise refused
    return location, revision
