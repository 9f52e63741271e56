"""Captures one model in a process of its own: reads a request on standard input, writes progress and the graph on
standard output."""

import json
import os
import sys
from pathlib import Path
from typing import IO, Any

from headway.core.capture import CaptureProgress, CaptureRequest
from headway.core.codec import from_document, to_document
from headway.core.errors import HeadwayError, InternalError
from headway.core.fault import Fault
from headway.profiler.zoo.registry import find_source


def main() -> None:
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what the user's code prints is no answer
        try:
            request = from_document(CaptureRequest, json.load(sys.stdin))
            if not Path(request.source).exists():
                find_source(request.source)  # a name that is not there is told before torch is imported
            from headway.profiler.capture.capture import capture

            _answer(answers, capture(request, report=lambda phase: _answer(answers, CaptureProgress(phase=phase))))
        except HeadwayError as error:
            _answer(answers, {"error": Fault.of(error)})
        except Exception as error:  # noqa: BLE001 - root of the process
            fault = InternalError(
                f"Capture failed: {type(error).__name__}: {error}", hint="This is a fault of Headway."
            )
            _answer(answers, {"error": Fault.of(fault)})


def _answer(answers: IO[str], value: Any) -> None:
    answers.write(json.dumps(to_document(value)) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
