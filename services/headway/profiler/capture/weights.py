"""Makes the weights that training begins with, in a process of its own: reads a request on standard input, writes a
file, and answers on standard output where it fails."""

import json
import os
import sys
from pathlib import Path

import torch
from torch import nn

from headway.checkpoint.model_directory import read_spec
from headway.checkpoint.names import check_trainable, checkpoint_name
from headway.checkpoint.tensors import write_tensors
from headway.core.codec import from_document, to_document
from headway.core.errors import HeadwayError, InvalidArgumentError
from headway.core.fault import Fault
from headway.core.initial_weights import WeightsRequest
from headway.profiler.capture.checkpoint_weights import read_weights
from headway.profiler.capture.mean_loss import check_mean_loss
from headway.profiler.capture.source import load


def write_weights(request: WeightsRequest) -> None:
    """Writes the model's own initial values of what the captured step reads.

    Raises:
        HeadwayError: the source can't be loaded.
        InvalidArgumentError: its loss is no mean over examples.
        FailedPreconditionError: the source is a checkpoint of a model that is not trained from one.
    """
    directory = Path(request.capture.source)
    if directory.exists():
        write_tensors(Path(request.path), _checkpoint_tensors(directory, request))
        return
    torch.manual_seed(request.seed)
    source = load(request.capture, device="cpu")
    held = _tensors(source.module)
    wanted = {name: held[name].detach().clone() for name in request.names if name in held}
    if source.targets is None:
        check_mean_loss(source.module, source.inputs, field="model")
    write_tensors(Path(request.path), wanted)


def _checkpoint_tensors(directory: Path, request: WeightsRequest) -> dict[str, torch.Tensor]:
    check_trainable(read_spec(directory), seq=request.capture.seq)
    held = _tensors(load(request.capture).module)
    names = {name: checkpoint_name(name) for name in request.names if name in held}
    read = read_weights(directory, list(names.values()))
    for name, known in names.items():
        if read[known].shape != held[name].shape:
            raise InvalidArgumentError(
                f"{directory} has a {known} of {list(read[known].shape)}, and its config.json one of "
                f"{list(held[name].shape)}.",
                field="model",
            )
    return {name: read[known].to(held[name].dtype).contiguous() for name, known in names.items()}


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
