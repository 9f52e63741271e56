"""Writes a trained model as a checkpoint directory, in a process of its own: reads a request on standard input, and
answers on standard output where it fails."""

import json
import os
import sys
from pathlib import Path

from headway.core.codec import from_document, to_document
from headway.core.errors import HeadwayError
from headway.core.fault import Fault
from headway.core.initial_weights import ExportRequest
from headway.profiler.capture.checkpoint_weights import export_weights


def main() -> None:
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as answers:
        try:
            request = from_document(ExportRequest, json.load(sys.stdin))
            export_weights(Path(request.checkpoint), model=Path(request.model), out=Path(request.out))
        except HeadwayError as error:
            answers.write(json.dumps({"error": to_document(Fault.of(error))}) + "\n")


if __name__ == "__main__":
    main()
