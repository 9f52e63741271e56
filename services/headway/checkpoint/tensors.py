"""Tensors in safetensors files, read and written with torch."""

import json
from collections.abc import Container, Iterable, Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from headway.checkpoint.readable import check_readable
from headway.checkpoint.weight_files import INDEX_FILE
from headway.checkpoint.whole_directory import sync
from headway.core.errors import InvalidArgumentError


def read_tensors(
    files: Iterable[Path], names: Container[str] | None = None, *, field: str = "model"
) -> dict[str, Tensor]:
    """The tensors in some files by name; only those of `names` where these are given.

    Raises:
        InvalidArgumentError: a file is damaged, or may not be read; `field` is whose.
    """
    found: dict[str, Tensor] = {}
    for path in files:
        try:
            check_readable(path, field=field)
            with safe_open(path, "pt") as file:
                found |= {name: file.get_tensor(name) for name in file.keys() if names is None or name in names}  # noqa: SIM118 - no mapping
        except (OSError, SafetensorError) as error:
            raise InvalidArgumentError(f"{path} cannot be read: {error}.", field=field) from error
    return found


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes a file, to the disk; raises OSError where that does not take it."""
    try:
        save_file(
            {name: tensor.detach().contiguous() for name, tensor in tensors.items()}, path, metadata={"format": "pt"}
        )
    except SafetensorError as error:
        raise OSError(str(error)) from error
    sync(path)


def write_index(directory: Path, files: Iterable[Path]) -> None:
    """Writes, to the disk, which tensor is in which of a directory's files."""
    places = {name: path.name for path in files for name in _names(path)}
    path = directory / INDEX_FILE
    path.write_text(json.dumps({"metadata": {}, "weight_map": places}, indent=1))
    sync(path)


def _names(path: Path) -> list[str]:
    with safe_open(path, "pt") as file:
        return list(file.keys())
