"""OpenVINO on the CPU. Inputs and outputs are torch's memory, so that no tensor is copied."""

import warnings
from collections.abc import Sequence

import torch
from torch import fx

from headway.backends.exportable import exportable
from headway.backends.library import CompileOptions, Run

_HINTS = {"float32": "f32", "bfloat16": "bf16"}


class OpenVino:
    def compile(self, module: fx.GraphModule, inputs: Sequence[torch.Tensor], options: CompileOptions) -> Run:
        import openvino

        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # of torch's own tracing
            model = openvino.convert_model(exportable(module), example_input=tuple(inputs))
            specs = tuple(torch.empty_like(given, memory_format=torch.contiguous_format) for given in module(*inputs))
        for number, (given, tensor) in enumerate(zip(model.inputs, inputs, strict=True)):
            varying = options.varying[number] if options.varying else ()
            shape = [-1 if dim in varying else size for dim, size in enumerate(tensor.shape)]
            given.get_node().set_partial_shape(openvino.PartialShape(shape))
        model.validate_nodes_and_infer_types()
        settings = {
            "INFERENCE_PRECISION_HINT": _HINTS[options.precision],  # bfloat16 unless told otherwise on such CPUs
            "INFERENCE_NUM_THREADS": options.num_threads,
            "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY",
        }
        request = openvino.Core().compile_model(model, "CPU", settings).create_infer_request()

        def run_varying(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            for number, tensor in enumerate(tensors):
                request.set_input_tensor(number, _shared(tensor.contiguous()))
            request.infer()
            return tuple(torch.from_numpy(result.data.copy()) for result in request.output_tensors)

        def run(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            made = tuple(torch.empty_like(spec) for spec in specs)
            for number, tensor in enumerate(tensors):
                request.set_input_tensor(number, _shared(tensor.contiguous()))
            for number, tensor in enumerate(made):
                request.set_output_tensor(number, _shared(tensor))
            request.infer()
            return made

        def _shared(tensor: torch.Tensor) -> object:
            return openvino.Tensor(tensor.numpy(), shared_memory=True)

        return run_varying if options.varying else run
