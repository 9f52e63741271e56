"""What is told of a run: lines of JSON in its progress file, and for whoever reads along."""

import json
from typing import IO, Any

from headway.core.codec import to_document


def tell(outputs: list[IO[str]], value: Any) -> None:
    """Writes a value to all outputs, at once; one that nobody reads any more is left out from then on."""
    text = json.dumps(to_document(value)) + "\n"
    for output in list(outputs):
        try:
            output.write(text)
            output.flush()
        except BrokenPipeError:
            outputs.remove(output)
