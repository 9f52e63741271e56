"""Files of a model that this process's user may not read."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headway.core.errors import InvalidArgumentError


@contextmanager
def telling_unreadable(*, field: str = "") -> Iterator[None]:
    """Raises InvalidArgumentError, which says what to do, for a file that is opened within and may not be read."""
    try:
        yield
    except PermissionError as error:
        raise _unreadable(Path(error.filename), field) from error


def check_readable(path: Path, *, field: str = "") -> None:
    """For whoever hands a path to a library that takes such a file for one that is missing, as safetensors does.

    Raises:
        FileNotFoundError: it is missing.
        InvalidArgumentError: as of `telling_unreadable`.
    """
    with telling_unreadable(field=field), path.open("rb"):
        pass


def _unreadable(path: Path, field: str) -> InvalidArgumentError:
    user = f"{path} may not be read by user {os.geteuid()}"
    closed = next((parent for parent in reversed(path.resolve().parents) if not os.access(parent, os.X_OK)), None)
    if closed is not None:
        return InvalidArgumentError(
            f"{user}, who may not enter {closed}.", hint=f"As its owner: chmod a+x {closed}.", field=field
        )
    return InvalidArgumentError(
        f"{user}.",
        hint=f"As its owner: chmod a+r {path}. In pods g+r is enough, where the volume's files have their fsGroup.",
        field=field,
    )
