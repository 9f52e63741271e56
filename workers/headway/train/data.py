"""What a model learns from. The examples of a step follow from seed and step alone, so a resumed run sees what an
undisturbed one does."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from headway.checkpoint.readable import check_readable, telling_unreadable
from headway.core.errors import InvalidArgumentError, NotFoundError
from headway.core.program import Value
from headway.core.training_job import DataSettings
from headway.train.batch import TARGETS

_TOKENS = "tokens"


class Data(Protocol):
    """Gives the examples of a step: tensors by the names of the captured step's inputs."""

    def batch(self, step: int) -> dict[str, torch.Tensor]: ...


def open_data(settings: DataSettings, inputs: Mapping[str, Value], *, batch: int, seed: int) -> Data:
    """Args:
    inputs: of the captured step that are no parameters or buffers, by name, for any number of examples.

    Raises:
        NotFoundError: there is no such file.
        InvalidArgumentError: the file may not be read, or has not what the step wants; names tensor, shape and dtype.
    """
    if settings.synthetic:
        return SyntheticData(inputs, batch=batch, seed=seed)
    tensors = _read(Path(settings.tensors or settings.tokens))
    if settings.tokens:
        return TokenData(tensors, inputs, batch=batch, seed=seed)
    return TensorData(tensors, inputs, batch=batch, seed=seed)


class SyntheticData:
    """Random numbers; integers within what the step can take."""

    def __init__(self, inputs: Mapping[str, Value], *, batch: int, seed: int) -> None:
        self._inputs, self._batch, self._seed = inputs, batch, seed

    def batch(self, step: int) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + step)
        return {name: self._tensor(value, generator) for name, value in sorted(self._inputs.items())}

    def _tensor(self, value: Value, generator: torch.Generator) -> torch.Tensor:
        shape, dtype = (self._batch, *value.shape[1:]), getattr(torch, value.dtype)
        if dtype.is_floating_point:
            return torch.randn(shape, generator=generator, dtype=dtype)
        return torch.randint(max(1, value.bound), shape, generator=generator, dtype=dtype)


class TensorData:
    """Examples of a file, in another order in each pass over it."""

    def __init__(
        self, tensors: Mapping[str, torch.Tensor], inputs: Mapping[str, Value], *, batch: int, seed: int
    ) -> None:
        for name, value in inputs.items():
            _check(name, tensors.get(name), value)
        self._tensors = {name: tensors[name].to(getattr(torch, value.dtype)) for name, value in inputs.items()}
        counts = {len(tensor) for tensor in self._tensors.values()}
        if len(counts) != 1 or min(counts) < batch:
            raise InvalidArgumentError(
                f"The data has {min(counts, default=0)} examples, and an iteration {batch}.",
                hint="Give all tensors as many examples, at least as many as a batch.",
                field="data",
            )
        self._order = _Order(counts.pop(), batch=batch, seed=seed)

    def batch(self, step: int) -> dict[str, torch.Tensor]:
        rows = self._order.rows(step)
        return {name: tensor[rows] for name, tensor in self._tensors.items()}


class TokenData:
    """Runs of one long text of tokens; see `DataSettings`."""

    def __init__(
        self, tensors: Mapping[str, torch.Tensor], inputs: Mapping[str, Value], *, batch: int, seed: int
    ) -> None:
        names = [name for name in inputs if name != TARGETS]
        if TARGETS not in inputs or len(names) != 1 or _TOKENS not in tensors:
            raise InvalidArgumentError(
                f"A text of tokens is no data for inputs {', '.join(inputs)}.",
                hint=f"The file needs a tensor '{_TOKENS}', and the model one input and targets.",
                field="data.tokens",
            )
        text = tensors[_TOKENS]
        if text.ndim != 1 or text.is_floating_point():
            raise InvalidArgumentError(
                f"The text of tokens is a tensor of {list(text.shape)} {text.dtype}.",
                hint="Give one long row of whole numbers: all texts, one after another.",
                field="data.tokens",
            )
        self._name, self._text = names[0], text.long()
        self._length = inputs[TARGETS].shape[1]
        count = max(0, len(self._text) - 1) // self._length
        if count < batch:
            raise InvalidArgumentError(
                f"The text has {count} runs of {self._length} tokens, and an iteration {batch}.", field="data.tokens"
            )
        bound, (least, most) = inputs[self._name].bound, map(int, self._text.aminmax())
        if bound and not 0 <= least <= most < bound:
            wrong = least if least < 0 else most
            raise InvalidArgumentError(
                f"The text has token {wrong}, and the model {bound} tokens, from 0 on.", field="data.tokens"
            )
        self._order = _Order(count, batch=batch, seed=seed)

    def batch(self, step: int) -> dict[str, torch.Tensor]:
        starts = self._order.rows(step) * self._length
        places = starts[:, None] + torch.arange(self._length)
        return {self._name: self._text[places], TARGETS: self._text[places + 1]}


class _Order:
    """Which examples a step has: each pass has its own order, and what is left at its end is left out."""

    def __init__(self, count: int, *, batch: int, seed: int) -> None:
        self._count, self._batch, self._seed = count, batch, seed
        self._known: tuple[int, torch.Tensor] = (-1, torch.empty(0))

    def rows(self, step: int) -> torch.Tensor:
        number, place = divmod(step, self._count // self._batch)
        if self._known[0] != number:
            generator = torch.Generator().manual_seed(self._seed * 1_000_003 + number)
            self._known = number, torch.randperm(self._count, generator=generator)
        return self._known[1][place * self._batch : (place + 1) * self._batch]


@telling_unreadable(field="data")
def _read(path: Path) -> dict[str, torch.Tensor]:
    if not path.is_file():
        raise NotFoundError(f"There is no file {path}.", hint="Name a safetensors file.", field="data")
    try:
        check_readable(path, field="data")
        return load_file(path)
    except SafetensorError as error:
        raise InvalidArgumentError(f"{path} is no safetensors file: {error}.", field="data") from error


def _check(name: str, tensor: torch.Tensor | None, value: Value) -> None:
    if tensor is None:
        raise InvalidArgumentError(f"The data has no tensor '{name}'.", hint="The model reads it.", field="data")
    if not tensor.ndim:
        raise InvalidArgumentError(
            f"The data's '{name}' has no examples: it is one number.", hint="Examples lie along dim 0.", field="data"
        )
    is_float = getattr(torch, value.dtype).is_floating_point
    if tuple(tensor.shape[1:]) != value.shape[1:] or tensor.is_floating_point() != is_float:
        raise InvalidArgumentError(
            f"The data's '{name}' has examples of {list(tensor.shape[1:])} {tensor.dtype}, and the model reads "
            f"{list(value.shape[1:])} {value.dtype}.",
            field="data",
        )
    if value.bound and tensor.numel() and int(tensor.max()) >= value.bound:
        raise InvalidArgumentError(
            f"The data's '{name}' has {int(tensor.max())}, and the model reads numbers below {value.bound}.",
            field="data",
        )
