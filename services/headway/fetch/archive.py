"""Archives of a model's files."""

import shutil
import tarfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from headway.core.errors import InvalidArgumentError
from headway.fetch.room import check_room
from headway.fetch.selection import select

_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"


def unpack(archive: Path, directory: Path, *, below: str) -> list[str]:
    """Takes a model's files out of an archive: from whichever of its folders has them, or from a folder of it.

    Args:
        below: the folder; '' for the one nearest to the top that has files.

    Returns:
        What the archive, as a layer of an image, deletes of the layers before it: names of files and folders; '' for
        all that they have.

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
            return _whiteouts(members, root)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise InvalidArgumentError(
            f"A layer cannot be unpacked: {error}.", hint="Archives are read as tar, and as tar with gzip."
        ) from None


def _path(member: tarfile.TarInfo) -> PurePosixPath:
    return PurePosixPath(member.name.removeprefix("./"))


def _whiteouts(paths: Iterable[PurePosixPath], root: PurePosixPath) -> list[str]:
    """What OCI's image specification calls whiteouts, of a file or folder, or of all that its folder had."""
    marks = [(path, path.name.removeprefix(_WHITEOUT)) for path in paths if path.name.startswith(_WHITEOUT)]
    deleted = [path.parent if path.name == _OPAQUE else path.parent / name for path, name in marks if name.strip(".")]
    below = [str(path.relative_to(root)) for path in deleted if path.is_relative_to(root) and path != root]
    return [*below, *([""] if any(root.is_relative_to(path) for path in deleted) else [])]


def _top(paths: "dict[PurePosixPath, tarfile.TarInfo]") -> PurePosixPath:
    """The folder of the file that the fewest folders are around."""
    return min((path.parent for path in paths), key=lambda folder: len(folder.parts), default=PurePosixPath())
