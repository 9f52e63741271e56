"""Room on a disk."""

import shutil
from pathlib import Path

from headway.core.errors import ResourceExhaustedError


def check_room(directory: Path, num_bytes: int) -> None:
    """ResourceExhaustedError where that many do not fit on a directory's disk."""
    free = shutil.disk_usage(directory).free
    if num_bytes > free:
        raise ResourceExhaustedError(
            f"{num_bytes / 1e9:.1f} GB are to come to {directory.parent}, which has room for {free / 1e9:.1f} GB.",
            hint="Make room there, or give a larger volume.",
        )
