"""TorchInductor with the weights frozen, so that it folds and prepacks them."""

from collections.abc import Sequence

import torch
from torch import fx

from headway.backends.library import CompileOptions, Run


class Inductor:
    def compile(
        self,
        module: fx.GraphModule,
        inputs: Sequence[torch.Tensor],
        options: CompileOptions,  # noqa: ARG002 - threads are the process's
    ) -> Run:
        """Compiles at once: shapes are fixed, as a second engine of the same code would lose its packed weights."""
        run: Run = torch.compile(module, fullgraph=True, dynamic=False, options={"freezing": True})
        with torch.no_grad():
            run(*inputs)
        return run
