"""What is told of a run: lines of JSON in its progress file, and for whoever reads along."""

import json
from pathlib import Path
from typing import IO, Any

from headway.core.codec import to_document
from headway.core.training_run import PROGRESS_FILE


def open_progress(directory: Path) -> IO[str]:
    """A run's progress file, for further lines behind one that a full disk may have cut short."""
    path = directory / PROGRESS_FILE
    is_cut = path.is_file() and path.read_bytes()[-1:] not in (b"", b"\n")
    opened = path.open("a")
    if is_cut:
        opened.write("\n")
    return opened


def tell(outputs: list[IO[str]], value: Any) -> None:
    """Writes a value to all outputs, at once; one that nobody reads any more is left out from then on."""
    text = json.dumps(to_document(value)) + "\n"
    for output in list(outputs):
        try:
            output.write(text)
            output.flush()
        except BrokenPipeError:
            outputs.remove(output)
