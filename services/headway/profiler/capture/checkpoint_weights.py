"""The tensors of a checkpoint directory, read and written."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import torch

from headway.checkpoint.model_directory import read_spec
from headway.checkpoint.names import checkpoint_name
from headway.checkpoint.tensors import read_tensors, write_tensors
from headway.checkpoint.weight_files import WEIGHTS_FILE, find_weights, read_weight_map
from headway.checkpoint.whole_directory import whole_directory
from headway.core.errors import FailedPreconditionError, InvalidArgumentError

_COPIED = {".json", ".jinja", ".txt", ".model"}


def read_weights(directory: Path, names: Sequence[str]) -> dict[str, torch.Tensor]:
    """Args:
    names: of the checkpoint's tensors.

    Raises:
        NotFoundError: the directory has no weights.
        InvalidArgumentError: a file is damaged, or a tensor is missing.
    """
    found = read_tensors(find_weights(directory), names)
    if missing := [name for name in names if name not in found]:
        raise InvalidArgumentError(
            f"{directory} has no tensor {missing[0]}.",
            hint="Its config.json describes another model than its weights are of.",
            field="model",
        )
    return found


def export_weights(checkpoint: Path, *, model: Path, out: Path) -> None:
    """Writes what a run has trained as a directory like the one that it began with, whole or not at all.

    Args:
        checkpoint: of the run, with an index of its tensors; read are those of parameters.
        model: the directory that the run began with, whose other files are copied.

    Raises:
        FailedPreconditionError: `out` exists, or the disk does not take it.
    """
    if out.exists():
        raise FailedPreconditionError(f"{out} exists.", hint="Name a directory that does not.", field="out")
    dtype = getattr(torch, read_spec(model).dtype)
    trained = read_weights(checkpoint, list(read_weight_map(checkpoint)))
    try:
        with whole_directory(out) as staging:
            write_tensors(
                staging / WEIGHTS_FILE, {checkpoint_name(name): each.to(dtype) for name, each in trained.items()}
            )
            for path in model.iterdir():
                if path.is_file() and path.suffix in _COPIED and not path.name.endswith(".index.json"):
                    shutil.copy(path, staging)
    except OSError as error:
        raise FailedPreconditionError(f"{out} could not be written: {error}.", field="out") from error
