"""Archives of a model's files."""

import shutil
import tarfile
from pathlib import Path, PurePosixPath

from headway.core.errors import InvalidArgumentError
from headway.fetch.room import check_room
from headway.fetch.selection import select


def unpack(archive: Path, directory: Path, *, below: str) -> None:
    """Takes a model's files out of an archive: from whichever of its folders has them, or from a folder of it.

    Args:
        below: the folder; '' for the one nearest to the top that has files.

    Raises:
        InvalidArgumentError: it is no archive, or compressed in a way that cannot be read.
        ResourceExhaustedError: what it unpacks to does not fit on the disk.
    """
    try:
        with tarfile.open(archive) as opened:
            members = {_path(member): member for member in opened if member.isfile()}
            root = PurePosixPath(below) if below else _top(members)
            found = {str(path.relative_to(root)): each for path, each in members.items() if path.is_relative_to(root)}
            wanted = sorted(select(found))
            check_room(directory, sum(found[name].size for name in wanted))
            for name in wanted:
                target = directory / name
                target.parent.mkdir(exist_ok=True)
                with opened.extractfile(found[name]) as source, target.open("wb") as out:  # type: ignore[union-attr]
                    shutil.copyfileobj(source, out)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise InvalidArgumentError(
            f"A layer cannot be unpacked: {error}.", hint="Archives are read as tar, and as tar with gzip."
        ) from None


def _path(member: tarfile.TarInfo) -> PurePosixPath:
    return PurePosixPath(member.name.removeprefix("./"))


def _top(paths: "dict[PurePosixPath, tarfile.TarInfo]") -> PurePosixPath:
    """The folder of the file that the fewest folders are around."""
    return min((path.parent for path in paths), key=lambda folder: len(folder.parts), default=PurePosixPath())
