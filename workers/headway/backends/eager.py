"""The backend that runs anything: torch, one operator after the other."""

from collections.abc import Sequence

import torch
from torch import fx

from headway.backends.library import CompileOptions, Run
from headway.backends.precision import with_precision


class Eager:
    def compile(
        self,
        module: fx.GraphModule,
        inputs: Sequence[torch.Tensor],  # noqa: ARG002 - it takes whatever comes
        options: CompileOptions,
    ) -> Run:
        return with_precision(module.forward, options)
