"""Makes the weights that training begins with, in a process of its own: reads a request on standard input, writes a
file, and answers on standard output where it fails."""

import json
import os
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from headway.core.codec import from_document, to_document
from headway.core.errors import FailedPreconditionError, HeadwayError
from headway.core.fault import Fault
from headway.core.initial_weights import WeightsRequest
from headway.profiler.capture.source import load


def write_weights(request: WeightsRequest) -> None:
    """Writes the model's own initial values of what the captured step reads.

    Raises:
        HeadwayError: the source can't be loaded.
        FailedPreconditionError: the source is a checkpoint.
    """
    if Path(request.capture.source).exists():
        raise FailedPreconditionError(
            f"{request.capture.source} is a checkpoint, whose weights training does not begin with yet.",
            hint="Name zoo:NAME or module:factory; a factory may load weights of its own.",
            field="model",
        )
    torch.manual_seed(request.seed)
    module = load(request.capture, device="cpu").module
    held = _tensors(module)
    wanted = {name: held[name].detach().clone().contiguous() for name in request.names if name in held}
    save_file(wanted, request.path)


def _tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    """Under all of their names."""
    parameters = dict(module.named_parameters(remove_duplicate=False))
    return {**dict(module.named_buffers(remove_duplicate=False)), **parameters}


def main() -> None:
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what the user's code prints is no answer
        try:
            write_weights(from_document(WeightsRequest, json.load(sys.stdin)))
        except HeadwayError as error:
            answers.write(json.dumps({"error": to_document(Fault.of(error))}) + "\n")


if __name__ == "__main__":
    main()
