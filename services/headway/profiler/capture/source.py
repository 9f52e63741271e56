"""Loads the module that the user names, with inputs for it."""

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from headway.checkpoint.model_directory import read_spec
from headway.core.capture import CaptureRequest
from headway.core.errors import InvalidArgumentError, NotFoundError
from headway.profiler.zoo.network import make_network
from headway.profiler.zoo.networks.decoder import Decoder
from headway.profiler.zoo.registry import find_source

_DEFAULT_SEQ = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A module to capture.

    Attributes:
        inputs: the arguments of its forward function.
        targets: for training, the classes that its first output scores; None where its outputs are the loss.
    """

    module: nn.Module
    inputs: tuple[Any, ...]
    targets: torch.Tensor | None = None


def load(request: CaptureRequest, *, device: str = "meta") -> Source:
    """Loads a module, on the meta device where its factory allows that.

    Args:
        device: that its parameters are made on; on 'cpu' they have the values with which training begins.

    Raises:
        NotFoundError: there is no such file, module or function.
        InvalidArgumentError: the factory raises or gives no module.
    """
    path = Path(request.source)
    if path.exists():
        return _from_checkpoint(path, request, device)
    if (model := find_source(request.source)) is not None:
        return Source(
            module=make_network(model, device),
            inputs=model.example_inputs(batch=request.batch, seq=request.seq),
            targets=model.example_targets(batch=request.batch, seq=request.seq) if request.train else None,
        )
    if request.is_code:
        return _from_factory(request, device)
    raise NotFoundError(
        f"There is no file or directory {request.source}.",
        hint="A model is the path of a checkpoint directory, module:factory or zoo:NAME.",
        field="source",
    )


def _from_checkpoint(directory: Path, request: CaptureRequest, device: str) -> Source:
    """Builds the network that `config.json` describes, trained in float32 to tell the next token: a lower precision is
    the plan's. The weights are not read.
    """
    spec = read_spec(directory)
    with torch.device(device):
        module = Decoder(spec).to(torch.float32 if request.train else getattr(torch, spec.dtype))
    seq = spec.max_position if request.seq is None else request.seq
    if seq > spec.max_position:
        raise InvalidArgumentError(
            f"{directory} has sequences of up to {spec.max_position} tokens, not {seq}.",
            hint="Give fewer.",
            field="seq",
        )
    tokens = torch.empty(request.batch, seq, dtype=torch.int64, device="meta")
    return Source(module=module, inputs=(tokens,), targets=torch.empty_like(tokens) if request.train else None)


def _from_factory(request: CaptureRequest, device: str) -> Source:
    factory = _find_factory(request.source)
    options = {"batch": request.batch, "seq": request.seq, "train": request.train}
    try:
        accepted = inspect.signature(factory).parameters
        with torch.device(device):
            made = factory(**{name: value for name, value in options.items() if name in accepted and value is not None})
    except Exception as error:
        raise _blame(request.source, error) from error
    if isinstance(made, nn.Module):
        tokens = torch.empty(request.batch, request.seq or _DEFAULT_SEQ, dtype=torch.int64, device="meta")
        return Source(module=made, inputs=(tokens,))
    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], nn.Module):
        module, inputs = made
        return Source(module=module, inputs=tuple(inputs) if isinstance(inputs, list | tuple) else (inputs,))
    raise InvalidArgumentError(
        f"{request.source} gave {type(made).__name__}, which is no module.",
        hint="A factory returns a torch.nn.Module, or a pair of one and a tuple of example inputs.",
        field="source",
    )


def _find_factory(source: str) -> Callable[..., Any]:
    module_name, _, path = source.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 - sys.path holds strings
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and module_name.startswith(error.name):
            raise NotFoundError(
                f"There is no Python module {error.name}.",
                hint="Run from the directory that it is in, or install it here.",
                field="source",
            ) from error
        raise _blame(module_name, error) from error
    except Exception as error:
        raise _blame(module_name, error) from error
    for name in path.split("."):
        if not hasattr(found, name):
            functions = [n for n, value in vars(found).items() if callable(value) and not n.startswith("_")]
            raise NotFoundError(
                f"{module_name} has no '{path}'.",
                hint=f"It has {', '.join(sorted(functions)[:10]) or 'no functions'}.",
                field="source",
            )
        found = getattr(found, name)
    if not callable(found):
        raise InvalidArgumentError(f"{source} is no function but {type(found).__name__}.", field="source")
    return found  # type: ignore[no-any-return]


def _blame(source: str, error: Exception) -> InvalidArgumentError:
    """Names the line of the user's code that raised."""
    place = ""
    frame = error.__traceback__
    while frame is not None:
        file = frame.tb_frame.f_code.co_filename
        if not file.startswith("<") and "site-packages" not in file and file != __file__:
            place = f" ({Path(file).name}:{frame.tb_lineno})"
        frame = frame.tb_next
    return InvalidArgumentError(
        f"{source} raised {type(error).__name__}{place}: {error}",
        hint="Capture calls it on the meta device, where tensors have no values. Call it yourself under "
        "`torch.device('meta')` to see the whole trace.",
        field="source",
    )
