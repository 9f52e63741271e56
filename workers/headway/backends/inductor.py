"""TorchInductor with the weights frozen, so that it folds and prepacks them."""

from collections.abc import Sequence

import torch
from torch import fx

from headway.backends.library import CompileOptions, Run
from headway.backends.precision import with_precision


class Inductor:
    def compile(self, module: fx.GraphModule, inputs: Sequence[torch.Tensor], options: CompileOptions) -> Run:
        """Compiles at once: shapes are fixed, as a second engine of the same code would lose its packed weights."""
        compiled: Run = torch.compile(module, fullgraph=True, dynamic=False, options={"freezing": True})
        run = with_precision(compiled, options)
        with torch.no_grad():
            run(*inputs)
        return run
