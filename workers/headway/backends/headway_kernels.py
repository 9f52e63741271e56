"""Headway's own C++ kernels on the CPU: products with constant weights, packed once, with bias and activation."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from headway import kernels
from headway.backends.library import CompileOptions, Run

_aten = torch.ops.aten

_VIEWS = frozenset({_aten.view.default, _aten.reshape.default, _aten._unsafe_view.default})  # noqa: SLF001 - as captured


class HeadwayKernels:
    def compile(
        self,
        module: fx.GraphModule,
        inputs: Sequence[torch.Tensor],  # noqa: ARG002 - the products take any number of rows
        options: CompileOptions,
    ) -> Run:
        """What is no product with a constant weight runs on torch.

        Raises:
            ValueError: there is none, or a weight is not float32.
        """
        packed = _Packing(module, options.precision)
        if not packed.num_products:
            raise ValueError("there is no product with a constant weight, which is what Headway's own kernels are for")
        run: Run = packed.module.forward
        return run


class _Packing:
    """A module whose products are packed: a copy, as the original is another backend's too."""

    def __init__(self, module: fx.GraphModule, precision: str) -> None:
        graph = fx.Graph()
        graph.output(graph.graph_copy(module.graph, {}))
        self.module = fx.GraphModule(module, graph)
        self.num_products = 0
        self._precision = precision
        for node in list(graph.nodes):
            if node.target in (_aten.addmm.default, _aten.mm.default):
                self._pack(node)
        graph.eliminate_dead_code()
        self.module.recompile()

    def _pack(self, node: fx.Node) -> None:
        bias, x, weight = (None, *node.args) if node.target is _aten.mm.default else node.args
        matrix, row = self._constant(weight), self._constant(bias)
        if matrix is None or node.kwargs or (bias is not None and (row is None or row.dim() != 1)):
            return
        last, activation = _activation(node)
        product = _product(matrix.t(), row, activation=activation, precision=self._precision)
        with node.graph.inserting_before(node):
            made = node.graph.call_function(product, (x,))
        node.replace_all_uses_with(made)
        if last is not node:
            last.replace_all_uses_with(last.all_input_nodes[0])
            node.graph.erase_node(last)
        node.graph.erase_node(node)
        self.num_products += 1

    def _constant(self, node: Any) -> torch.Tensor | None:
        """The value of a buffer, or of a view of one; None where it depends on an input."""
        if not isinstance(node, fx.Node):
            return None
        if node.op == "get_attr":
            found: torch.Tensor = getattr(self.module, str(node.target))
            return found
        if node.op != "call_function" or len(node.all_input_nodes) != 1:
            return None
        source = self._constant(node.all_input_nodes[0])
        if source is None or node.args[0] is not node.all_input_nodes[0]:
            return None
        made: torch.Tensor = node.target(source, *node.args[1:], **node.kwargs)  # type: ignore[operator]
        return made


def _activation(node: fx.Node) -> tuple[fx.Node, str]:
    """The activation that alone reads a product, perhaps through views, and its name; the product itself and 'none'."""
    last = node
    while len(last.users) == 1:
        last = next(iter(last.users))
        if last.target is _aten.relu.default:
            return last, "relu"
        if last.target is _aten.gelu.default:
            return last, "gelu_tanh" if last.kwargs.get("approximate") == "tanh" else "gelu"
        if last.target not in _VIEWS:
            break
    return node, "none"


def _product(
    weight: torch.Tensor, bias: torch.Tensor | None, *, activation: str, precision: str
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Args:
    weight: [out_features, in_features] float32.
    precision: 'float32'; 'bfloat16' rounds weights and rows; 'int8' rounds weights to that and rows to bfloat16.
    """
    if weight.dtype is not torch.float32:
        raise ValueError(f"a weight is {weight.dtype}; Headway's own kernels take float32 here")
    if precision == "int8":
        rows, scales = kernels.quantize(weight)
        layer = kernels.pack_linear(rows, scales=scales)
    else:
        layer = kernels.pack_linear(weight.to(getattr(torch, precision)).contiguous())

    def product(x: torch.Tensor) -> torch.Tensor:
        rows = x.contiguous() if precision == "float32" else x.bfloat16().contiguous()
        return kernels.linear(rows, layer, bias=bias, activation=activation).float()

    return product
