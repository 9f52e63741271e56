"""Keeps the logs of a stack from filling the disk while its processes run."""

import logging
import os
import shutil
from pathlib import Path

log = logging.getLogger(__name__)

MAX_BYTES = 64 * 1024 * 1024


def rotate_logs(directory: Path, *, max_bytes: int = MAX_BYTES) -> None:
    """Moves the content of each log that has outgrown `max_bytes` to `NAME.log.1`, whose older content is lost.

    The file itself stays and is emptied, since the processes that append to it keep it open. A line that is written in
    between is lost. Where the disk has no room for the copy, the log is emptied all the same.
    """
    for path in sorted(directory.glob("*.log")):
        try:
            if path.stat().st_size <= max_bytes:
                continue
            try:
                shutil.copyfile(path, path.with_suffix(".log.1"))
            finally:
                os.truncate(path, 0)
        except OSError as error:
            log.warning("%s cannot be rotated: %s", path, error.strerror)
