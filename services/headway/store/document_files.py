"""Typed documents in the files of a directory, for processes that have no Redis."""

import json
import os
from pathlib import Path
from typing import Generic, TypeVar

from headway.core.codec import from_document, to_document
from headway.core.errors import UnavailableError
from headway.store.schema import KeyFamily

T = TypeVar("T")


class DocumentFiles(Generic[T]):
    """One key family of JSON documents of one type, each in a file of its own; the methods are those of `Documents`.

    Every write replaces a whole file. Processes may share the directory; UnavailableError where it cannot be written.
    """

    def __init__(self, directory: Path, family: KeyFamily, kind: type[T]) -> None:
        self._directory = directory
        self._family = family
        self._kind = kind

    async def put(self, value: T, *parts: str) -> None:
        path = self._path(*parts)
        staging = path.with_suffix(f".{os.getpid()}")
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            staging.write_text(json.dumps(to_document(value)))
            staging.replace(path)
        except OSError as error:
            raise UnavailableError(
                f"{self._directory} cannot be written: {error.strerror}.", hint="Choose another with --state-dir."
            ) from error

    async def get(self, *parts: str) -> T | None:
        return self._read(self._path(*parts))

    async def delete(self, *parts: str) -> bool:
        """Whether it was there."""
        path = self._path(*parts)
        was_there = path.exists()
        path.unlink(missing_ok=True)
        return was_there

    async def all(self) -> list[T]:
        """Every document of the family, in the order of their keys."""
        found = [self._read(path) for path in sorted(self._directory.glob(self._path("*").name))]
        return [value for value in found if value is not None]

    def _path(self, *parts: str) -> Path:
        return self._directory / f"{self._family.pattern.format(*parts).replace(':', '.')}.json"

    def _read(self, path: Path) -> T | None:
        try:
            text = path.read_text()
        except FileNotFoundError:
            return None
        return from_document(self._kind, json.loads(text), is_stored=True)
