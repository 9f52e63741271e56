"""Files that only their owner may read."""

import os
from pathlib import Path


def replace_private_file(path: Path, content: bytes) -> None:
    """Writes a file in one step: whoever reads it meanwhile finds the last content or this one, and nobody else any."""
    staging = path.with_name(f".{path.name}")
    staging.unlink(missing_ok=True)
    with os.fdopen(os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    staging.replace(path)
