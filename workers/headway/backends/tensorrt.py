"""TensorRT on NVIDIA's GPUs, through the package torch-tensorrt."""

from collections.abc import Sequence

import torch
from torch import fx

from headway.backends.exportable import exportable
from headway.backends.library import CompileOptions, Run


class TensorRt:
    def compile(
        self,
        module: fx.GraphModule,
        inputs: Sequence[torch.Tensor],
        options: CompileOptions,  # noqa: ARG002 - it runs on no thread of ours
    ) -> Run:
        """Compiles all of a module or nothing: what TensorRT lacks is another backend's."""
        import torch_tensorrt

        with torch.no_grad():
            program = torch.export.export(exportable(module), tuple(inputs), strict=False)
            compiled = torch_tensorrt.dynamo.compile(
                program, inputs=list(inputs), require_full_compilation=True, disable_tf32=True
            )

        def run(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple(given.clone() for given in compiled(*tensors))

        return run
