"""Directories that are there as a whole or not at all, whenever who writes them dies."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_directory(final: Path) -> Iterator[Path]:
    """Yields a new directory beside `final` to be filled, which takes its place once the block ends well.

    Raises OSError where the disk does not take it; `final` is then as it was.
    """
    partial = final.with_name(f"{final.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    yield partial
    put_in_place(partial, final)


def put_in_place(partial: Path, final: Path) -> None:
    """Gives a filled directory its name; what had that name before is gone."""
    sync(partial)
    if final.exists():
        shutil.rmtree(final)
    partial.rename(final)


def sync(path: Path) -> None:
    """Waits until a file, or the names in a directory, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
