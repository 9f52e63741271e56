"""The volume that every pod has models in: where a declared model is on it, and whether it is the one that is meant."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from headway.core.errors import InvalidArgumentError, NotFoundError

_SCHEME = "pvc://"
_READ_BYTES = 1 << 20

_Stamp = tuple[tuple[str, int, int], ...]
"""Of each file its name, size in bytes and time of change in ns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelVolume:
    """Attributes:
    directory: where it is mounted.
    claim: the PersistentVolumeClaim that it is of; empty where it is of none.
    """

    directory: Path
    claim: str = ""
    _digests: dict[Path, tuple[_Stamp, str]] = field(default_factory=dict, compare=False)

    def path_of(self, uri: str) -> Path:
        """The directory of a model on it.

        InvalidArgumentError for another scheme, another claim, or a path that leaves the volume.
        """
        claim, _, path = uri.removeprefix(_SCHEME).partition("/")
        if not uri.startswith(_SCHEME) or not path:
            raise InvalidArgumentError(
                f"{uri} is not read: nothing is fetched from elsewhere.",
                hint=f"Copy the files to the volume of modelStorage, and give {_SCHEME}CLAIM/DIRECTORY or a path.",
                field="spec.uri",
            )
        if claim != self.claim:
            told = f"the volume of claim {self.claim}" if self.claim else "a volume of no claim"
            hint = f"Give {_SCHEME}{self.claim}/DIRECTORY." if self.claim else "Give a path."
            raise InvalidArgumentError(f"{uri}: the release's pods have {told}.", hint=hint, field="spec.uri")
        if ".." in Path(path).parts:
            raise InvalidArgumentError(f"{uri} leaves its volume.", hint="Leave '..' out.", field="spec.uri")
        return self.directory / path.lstrip("/")

    def check(self, directory: Path, *, sha256: str) -> None:
        """InvalidArgumentError where a model's files are others than the digest says. Reads all of them, once as long
        as none of them changes."""
        stamp = _stamp_of(directory)
        known = self._digests.get(directory)
        if known is None or known[0] != stamp:
            known = self._digests[directory] = (stamp, digest_of(directory))
        if known[1] != sha256:
            raise InvalidArgumentError(
                f"The files in {directory} have the digest {known[1]}, not {sha256}.",
                hint="Copy the model again, or correct the digest.",
                field="spec.sha256",
            )


def digest_of(directory: Path) -> str:
    """The digest of a directory's files: what `LC_ALL=C sha256sum -- * | sha256sum` says in it, but for folders."""
    lines = hashlib.sha256()
    for path in _files_of(directory):
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while part := file.read(_READ_BYTES):
                digest.update(part)
        lines.update(f"{digest.hexdigest()}  {path.name}\n".encode())
    return lines.hexdigest()


def _stamp_of(directory: Path) -> _Stamp:
    return tuple((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in _files_of(directory))


def _files_of(directory: Path) -> list[Path]:
    if not directory.is_dir():
        raise NotFoundError(f"There is no directory {directory}.", hint="Copy the model there.", field="spec.path")
    files = (path for path in directory.iterdir() if path.is_file() and not path.name.startswith("."))
    return sorted(files, key=lambda path: path.name.encode())
