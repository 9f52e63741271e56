"""Builds a `core.program.Program`, which can be run again, from a trace."""

import json
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from headway.core.errors import InvalidArgumentError
from headway.core.program import REFERENCE, Instruction, Program, Value
from headway.profiler.capture.bounds import PASSING, index_bounds
from headway.profiler.capture.rules import base_name
from headway.profiler.capture.trace import Trace
from headway.profiler.capture.viewing import is_view

GETITEM = "getitem"
_SCALARS = (bool, int, float, str)


def build_program(trace: Trace) -> Program:
    """Builds a program of all of the trace but its checks; instructions have the names of the graph's operators.

    Constants of the module's code are inputs too, named as in the trace.
    """
    nodes = list(trace.graph.graph.nodes)
    sources = [node for node in nodes if node.op in ("placeholder", "get_attr")]
    calls = [node for node in nodes if node.op == "call_function" and not _is_check(node)]
    numbers = {node: i for i, node in enumerate([*sources, *calls])}
    bounds = _bounds(calls)
    placeholders = [node for node in sources if node.op == "placeholder"]
    names = dict(zip(placeholders, trace.names, strict=True))
    weights = {node for node, name in names.items() if name in trace.parameters}
    given = [leaf for leaf in nodes[-1].args[0] if isinstance(leaf, fx.Node)]
    for node in calls:
        if _is_view(node) and node.all_input_nodes and node.all_input_nodes[0] in weights:
            weights.add(node)
    return Program(
        inputs=tuple(_value(node, _tensor_of(trace, node), bounds, weights) for node in sources),
        instructions=tuple(_instruction(node, numbers, bounds, weights) for node in calls),
        names=tuple(names.get(node, node.name) for node in sources),
        results=tuple(numbers[node] for node in given[: trace.num_outputs]),
        gradients={name: numbers[node] for name, node in zip(trace.trained, given[trace.num_outputs :], strict=True)},
    )


def check_constants(trace: Trace) -> None:
    """InvalidArgumentError where the step reads a tensor that is neither parameter, buffer nor input."""
    for node in trace.graph.graph.nodes:
        if node.op == "get_attr":
            value = _tensor_of(trace, node)
            raise InvalidArgumentError(
                f"The model's code has a tensor of {list(value.shape)} {value.dtype} that is no parameter or buffer.",
                hint="Give it to register_buffer in the module's __init__; numbers alone need no tensor.",
                field="model",
            )


def _is_check(node: fx.Node) -> bool:
    target = node.target
    if not isinstance(target, OpOverload):
        return False
    schema = target._schema  # noqa: SLF001 - torch has no other way to ask
    return not schema.returns and not any(a.alias_info and a.alias_info.is_write for a in schema.arguments)


def _is_view(node: fx.Node) -> bool:
    return node.target is operator.getitem or (isinstance(node.target, OpOverload) and is_view(node.target))


def _tensor_of(trace: Trace, node: fx.Node) -> torch.Tensor:
    value = node.meta["val"] if node.op == "placeholder" else getattr(trace.graph, str(node.target))
    assert isinstance(value, torch.Tensor)
    return value


def _value(node: fx.Node, tensor: torch.Tensor, bounds: dict[fx.Node, int], weights: set[fx.Node]) -> Value:
    return Value(
        shape=tuple(map(int, tensor.shape)),
        stride=tuple(map(int, tensor.stride())),
        dtype=str(tensor.dtype).removeprefix("torch."),
        bound=bounds.get(node, 0),
        is_weight=node in weights,
    )


def _instruction(
    node: fx.Node, numbers: dict[fx.Node, int], bounds: dict[fx.Node, int], weights: set[fx.Node]
) -> Instruction:
    target = GETITEM if node.target is operator.getitem else str(node.target)
    given = {"args": _plain(node.args, numbers), "kwargs": _plain(dict(node.kwargs), numbers)}
    value = node.meta.get("val")
    tensors = [part for part in (value if isinstance(value, list | tuple) else [value]) if torch.is_tensor(part)]
    return Instruction(
        target=target,
        arguments=json.dumps(given, separators=(",", ":")),
        results=tuple(_value(node, tensor, bounds, weights) for tensor in tensors),
        is_view=_is_view(node),
        name=node.name,
    )


def _plain(argument: Any, numbers: dict[fx.Node, int]) -> Any:
    """Converts an argument to JSON; an instruction with one that has no JSON form, such as an object of the user's,
    cannot run."""
    if isinstance(argument, fx.Node):
        return {REFERENCE: numbers[argument]}
    if isinstance(argument, list | tuple):
        return [_plain(item, numbers) for item in argument]
    if isinstance(argument, dict):
        return {key: _plain(item, numbers) for key, item in argument.items()}
    return argument if argument is None or isinstance(argument, _SCALARS) else _named(argument)


def _named(argument: Any) -> dict[str, Any]:
    match argument:
        case complex():
            return {"complex": [argument.real, argument.imag]}
        case torch.dtype() | torch.layout() | torch.memory_format():
            return {type(argument).__name__: str(argument).removeprefix("torch.")}
        case torch.device():
            return {"device": None}
        case _:
            return {"unknown": type(argument).__name__}


def _bounds(calls: Sequence[fx.Node]) -> dict[fx.Node, int]:
    """Finds how large the indices may be that operators take, also those that come through views and copies."""
    bounds: dict[fx.Node, int] = {}
    for node in reversed(calls):
        if not isinstance(node.target, OpOverload):
            continue
        name = base_name(node.target) or ""
        found = dict(index_bounds(name, node.args))
        if node in bounds and (_is_view(node) or name in PASSING):
            found[node.all_input_nodes[0]] = bounds[node]
        for source, bound in found.items():
            bounds[source] = min(bound, bounds.get(source, bound))
    return bounds
