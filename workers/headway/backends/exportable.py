"""Rewrites what a captured graph calls into what exporters know: the same operators under their public names."""

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.nn import functional

_aten = torch.ops.aten
_OWN_NAMESPACES = ("aten", "prims", "quantized_decomposed")


def exportable(module: fx.GraphModule) -> fx.GraphModule:
    """The same module without operators of which only the first result is read and that exporters don't know.

    Raises:
        ValueError: it calls an operator that is not torch's own, which no exporter knows.
    """
    for node in module.graph.nodes:
        if isinstance(node.target, OpOverload) and node.target.namespace not in _OWN_NAMESPACES:
            raise ValueError(f"it can't be exported, as {node.target} is not an operator of torch's own")
    graph = fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    copied = fx.GraphModule(module, graph)
    for node in list(graph.nodes):
        rewrite = _REWRITES.get(node.target)
        if rewrite is not None and all(_is_first(user) for user in node.users):
            _replace(node, rewrite)
    graph.eliminate_dead_code()
    copied.recompile()
    return copied


def _is_first(user: fx.Node) -> bool:
    return user.target is operator.getitem and bool(user.args[1] == 0)


def _replace(node: fx.Node, rewrite: Callable[..., torch.Tensor]) -> None:
    with node.graph.inserting_before(node):
        made = node.graph.call_function(rewrite, node.args, node.kwargs)
    for user in list(node.users):
        user.replace_all_uses_with(made)
        node.graph.erase_node(user)
    node.graph.erase_node(node)


def _batch_norm(*given: Any) -> torch.Tensor:
    """Of (input, weight, bias, running_mean, running_var, training, momentum, eps)."""
    tensor, weight, bias, mean, variance, training, momentum, eps = given
    return functional.batch_norm(tensor, mean, variance, weight, bias, training, momentum, eps)


def _layer_norm(tensor: torch.Tensor, shape: list[int], weight: Any, bias: Any, eps: float) -> torch.Tensor:
    return functional.layer_norm(tensor, shape, weight, bias, eps)


def _max_pool(tensor: torch.Tensor, *given: Any) -> torch.Tensor:
    pooled: torch.Tensor = functional.max_pool2d(tensor, *given)
    return pooled


def _max_pool_3d(tensor: torch.Tensor, *given: Any) -> torch.Tensor:
    pooled: torch.Tensor = functional.max_pool3d(tensor, *given)
    return pooled


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,  # noqa: FBT001, FBT002 - as aten has it
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> torch.Tensor:
    return functional.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale)


_REWRITES: dict[Any, Callable[..., torch.Tensor]] = {
    _aten.native_batch_norm.default: _batch_norm,
    _aten.native_layer_norm.default: _layer_norm,
    _aten.max_pool2d_with_indices.default: _max_pool,
    _aten.max_pool3d_with_indices.default: _max_pool_3d,
    _aten._scaled_dot_product_flash_attention_for_cpu.default: _attention,  # noqa: SLF001 - what capture finds
}
