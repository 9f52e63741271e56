"""ONNX Runtime on the CPU. Tensors are bound where they lie, so that none is copied."""

import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import fx, nn

from headway.backends.exportable import exportable
from headway.backends.library import CompileOptions, Run


class OnnxRuntime:
    def compile(self, module: fx.GraphModule, inputs: Sequence[torch.Tensor], options: CompileOptions) -> Run:
        import onnxruntime

        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = options.num_threads
        settings.inter_op_num_threads = 1
        settings.log_severity_level = 3
        settings.add_session_config_entry("session.intra_op.allow_spinning", "0")  # it would slow the next engine
        model = _exported(module, inputs, options)
        session = onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
        specs = [torch.empty_like(given, memory_format=torch.contiguous_format) for given in _outputs(module, inputs)]
        names = [given.name for given in session.get_inputs()]
        results = [given.name for given in session.get_outputs()]
        places = [int(name.removeprefix("input_")) for name in names]

        def run_varying(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            given = {name: tensors[place].numpy() for name, place in zip(names, places, strict=True)}
            return tuple(torch.from_numpy(made) for made in session.run(results, given))

        def run(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            binding = session.io_binding()
            read = [tensors[place].contiguous() for place in places]
            made = tuple(torch.empty_like(spec) for spec in specs)
            for name, tensor in zip(names, read, strict=True):
                binding.bind_input(name, "cpu", 0, _numpy_type(tensor), tuple(tensor.shape), tensor.data_ptr())
            for name, tensor in zip(results, made, strict=True):
                binding.bind_output(name, "cpu", 0, _numpy_type(tensor), tuple(tensor.shape), tensor.data_ptr())
            session.run_with_iobinding(binding)
            return made

        return run_varying if options.varying else run


def _exported(module: fx.GraphModule, inputs: Sequence[torch.Tensor], options: CompileOptions) -> bytes:
    names = [f"input_{number}" for number in range(len(inputs))]
    varying = {name: list(dims) for name, dims in zip(names, options.varying, strict=False)}
    with warnings.catch_warnings(), torch.no_grad(), tempfile.TemporaryDirectory() as directory:
        warnings.simplefilter("ignore")  # of torch's own tracing
        path = Path(directory) / "engine.onnx"
        torch.onnx.export(
            _Opaque(exportable(module)), tuple(inputs), path, input_names=names, dynamic_axes=varying, dynamo=False
        )
        if options.precision == "int8":
            _quantize(path)
        return path.read_bytes()


class _Opaque(nn.Module):
    """A module whose graph the exporter does not take for one of its own."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__()
        self._module = module

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        outputs: tuple[torch.Tensor, ...] = self._module(*inputs)
        return outputs


def _quantize(path: Path) -> None:
    """Rounds the weights of products to int8, each column by itself; their inputs are rounded as they come.

    A processor without VNNI adds pairs of products in 16 bits, where they overflow: its weights have 7 bits.

    Raises:
        ValueError: there is no product with a constant weight.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(
        path,
        path,
        op_types_to_quantize=["MatMul"],
        per_channel=True,
        weight_type=QuantType.QInt8,
        reduce_range=not torch.cpu._is_vnni_supported(),  # noqa: SLF001 - it says so nowhere else
    )
    if not any(node.op_type == "MatMulInteger" for node in onnx.load(path).graph.node):
        raise ValueError("there is no product with a constant weight, which is what is rounded to int8")


def _outputs(module: fx.GraphModule, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    with torch.no_grad():
        outputs: tuple[torch.Tensor, ...] = module(*inputs)
    return outputs


def _numpy_type(tensor: torch.Tensor) -> object:
    return tensor.numpy().dtype.type
