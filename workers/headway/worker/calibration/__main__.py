"""`python -m headway.worker.calibration`: cells to time on standard input, timings on standard output."""

import json
import os
import sys
from typing import IO, Any

from headway.core.codec import from_document, to_document
from headway.core.errors import FailedPreconditionError, HeadwayError, InternalError
from headway.core.fault import Fault
from headway.core.hardware.calibration import CalibrationAnswer, CalibrationRequest
from headway.observe.parentage import end_with_parent
from headway.worker.calibration.machine import detect_machine


def main() -> None:
    end_with_parent()
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        try:
            _calibrate(from_document(CalibrationRequest, json.load(sys.stdin)), answers)
        except BrokenPipeError:
            os._exit(1)  # whoever asked has gone
        except HeadwayError as error:
            _answer(answers, {"error": Fault.of(error)})
        except Exception as error:  # noqa: BLE001 - root of the process
            fault = InternalError(
                f"Calibration failed: {type(error).__name__}: {error}", hint="This is a fault of Headway."
            )
            _answer(answers, {"error": Fault.of(fault)})


def _calibrate(request: CalibrationRequest, answers: IO[str]) -> None:
    if request.device == "cuda":
        _check_gpu()
    machine = detect_machine(request.device, num_threads=request.num_threads)
    _answer(answers, CalibrationAnswer(machine=machine))
    if request.cells:
        from headway.worker.calibration.calibration import calibrate  # loads torch

        for answer in calibrate(request):
            _answer(answers, answer)


def _check_gpu() -> None:
    import torch

    if not torch.cuda.is_available():
        raise FailedPreconditionError("There is no GPU that torch can use.", hint="Leave --device out.", field="device")


def _answer(answers: IO[str], value: Any) -> None:
    answers.write(json.dumps(to_document(value)) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
