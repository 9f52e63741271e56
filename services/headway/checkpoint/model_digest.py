"""The digest of a model's files: one number for a directory."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from headway.core.errors import NotFoundError

_READ_BYTES = 1 << 20


def digest_of(directory: Path) -> str:
    """The digest of a directory's files: what `LC_ALL=C sha256sum -- * | sha256sum` says in it, but for folders."""
    return combined_digest({path.name: file_digest(path) for path in files_of(directory)})


def combined_digest(digests: Mapping[str, str]) -> str:
    """The digest of a directory whose files, by name, have these."""
    names = sorted(digests, key=str.encode)
    return hashlib.sha256("".join(f"{digests[name]}  {name}\n" for name in names).encode()).hexdigest()


def file_digest(path: Path) -> str:
    """The SHA-256 of one file, in hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(_READ_BYTES):
            digest.update(part)
    return digest.hexdigest()


def files_of(directory: Path) -> list[Path]:
    """The files that count; NotFoundError where there is no such directory."""
    if not directory.is_dir():
        raise NotFoundError(f"There is no directory {directory}.", hint="Copy the model there.", field="spec.path")
    return sorted(path for path in directory.iterdir() if path.is_file() and not path.name.startswith("."))
