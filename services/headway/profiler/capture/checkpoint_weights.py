"""The tensors of a checkpoint directory, read and written."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from headway.core.checkpoint_names import checkpoint_name
from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.store.checkpoint import find_weights, read_spec

_WEIGHTS = "model.safetensors"
_COPIED = {".json", ".jinja", ".txt", ".model"}


def read_weights(directory: Path, names: Sequence[str]) -> dict[str, torch.Tensor]:
    """Args:
    names: of the checkpoint's tensors.

    Raises:
        NotFoundError: the directory has no weights.
        InvalidArgumentError: a file is damaged, or a tensor is missing.
    """
    found: dict[str, torch.Tensor] = {}
    for path in find_weights(directory):
        try:
            with safe_open(path, "pt") as file:
                found |= {name: file.get_tensor(name) for name in file.keys() if name in names}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise InvalidArgumentError(f"{path} cannot be read: {error}.", field="model") from error
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
    trained = read_weights(checkpoint, _indexed(checkpoint))
    staging = out.with_name(f"{out.name}.partial")
    shutil.rmtree(staging, ignore_errors=True)
    try:
        staging.mkdir(parents=True)
        _write(staging / _WEIGHTS, {checkpoint_name(name): each.to(dtype) for name, each in trained.items()})
        for path in model.iterdir():
            if path.is_file() and path.suffix in _COPIED and not path.name.endswith(".index.json"):
                shutil.copy(path, staging)
        staging.rename(out)
    except (OSError, SafetensorError) as error:
        raise FailedPreconditionError(f"{out} could not be written: {error}.", field="out") from error


def _write(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, metadata={"format": "pt"})


def _indexed(checkpoint: Path) -> list[str]:
    return list(json.loads((checkpoint / f"{_WEIGHTS}.index.json").read_text())["weight_map"])
