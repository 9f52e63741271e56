"""What a kernel library has to do to be a backend."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import torch
from torch import fx

Run: TypeAlias = Callable[..., tuple[torch.Tensor, ...]]
"""Takes an engine's inputs and gives its outputs, which are nobody else's memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileOptions:
    """How to compile an engine.

    Attributes:
        precision: what products are computed in: 'float32', 'bfloat16', or 'int8' for weights that are rounded to it.
        num_threads: threads of one run.
        varying: the dims of each input that differ from run to run; empty where all are as in the examples.
    """

    precision: str = "float32"
    num_threads: int = 1
    varying: tuple[tuple[int, ...], ...] = ()


class Library(Protocol):
    """A kernel library; `headway.core.backend_package.BackendPackage` says where it comes from."""

    def compile(self, module: fx.GraphModule, inputs: Sequence[torch.Tensor], options: CompileOptions) -> Run:
        """Compiles a module for inputs of these shapes; what it holds as buffers never changes.

        It may raise anything: what a library does not know is no fault of Headway's, and another one runs it then.
        """
