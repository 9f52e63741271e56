"""A place that has a model's files."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """Attributes:
    name: of the file in the model's directory, or of an archive that is unpacked there.
    key: what the place calls it.
    num_bytes: as it is sent.
    sha256: of the file in hexadecimal digits; empty where the place does not tell it.
    """

    name: str
    key: str
    num_bytes: int
    sha256: str = ""


class ModelSource(Protocol):
    """Attributes:
    version: what tells these files from others of the same place; see `FetchReport`.
    files: those that are a model's.
    """

    version: str
    files: tuple[RemoteFile, ...]

    def download(self, file: RemoteFile, directory: Path) -> None:
        """Brings a file, or the rest of one that is there in part, to a directory. May be called from several threads.

        Raises:
            UnavailableError: the place does not answer, or breaks off.
            HeadwayError: it will not give the file.
        """
