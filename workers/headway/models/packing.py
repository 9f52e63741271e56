"""Packs a linear layer as soon as the last tensor that fills it has been read."""

from collections import Counter
from collections.abc import Sequence

from torch import Tensor

from headway.models.linear import Linear
from headway.models.weights import Tensors


class Packing:
    """Packs layers one by one while a checkpoint is read.

    A layer that is quantised gives its memory back before the next ones are read, so a model that fits the machine
    only in int8 can be loaded there: memory that was allocated but not written yet takes none on a CPU.
    """

    def __init__(self, linears: Sequence[Linear], tensors: Tensors, *, quantization: str | None) -> None:
        """`tensors`: what the checkpoint's tensors fill."""
        self._quantization = quantization
        owners: dict[int, list[Linear]] = {}  # a tied head shares its memory with the embedding only
        for linear in linears:
            for parameter in (linear.weight, linear.bias):
                if parameter is not None:
                    owners.setdefault(_address(parameter), []).append(linear)
        self._owners = {
            name: {linear for part in parts for linear in owners.get(_address(part.view), [])}
            for name, parts in tensors.items()
        }
        self._num_missing = Counter(linear for owned in self._owners.values() for linear in owned)

    def loaded(self, name: str) -> None:
        """Says that a tensor has been read."""
        for linear in self._owners.pop(name):
            self._num_missing[linear] -= 1
            if not self._num_missing[linear]:
                linear.pack(quantization=self._quantization)


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
