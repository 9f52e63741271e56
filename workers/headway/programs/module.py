"""Builds a torch function from a tensor program."""

import json
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx, nn
from torch._ops import OpOverload

from headway.core.program import Program
from headway.programs.attention import gpu_functions

_REACH_OUT = (torch.ops.aten.from_file.default, torch.ops.aten.from_file.out)
"""What writes or reads files."""


class UnknownOperatorError(Exception):
    """A call that this process can't make; the message says why."""


def build_module(
    program: Program,
    device: torch.device,
    own: Mapping[str, Callable[..., Any]] | None = None,
    *,
    takes_list: bool = False,
) -> fx.GraphModule:
    """Takes the program's inputs and gives its results and gradients, in order, or its last value where it names none;
    drops each tensor after its last use.

    Args:
        own: functions that torch does not have, by the targets that programs have for them.
        takes_list: whether it is given the inputs as one list, out of which it takes them all: then it is the last that
            holds an input that its caller does not, and drops that after its last use, too.
    """
    known = {**({} if device.type == "cpu" else gpu_functions(program)), **(own or {})}
    graph = fx.Graph()
    if takes_list:
        given = graph.placeholder("inputs")
        values = [graph.call_method("pop", (given,)) for _ in program.inputs][::-1]
    else:
        values = [graph.placeholder(f"input_{i}") for i in range(len(program.inputs))]
    for instruction in program.instructions:
        called = json.loads(instruction.arguments)
        arguments = tuple(_decode(argument, values, device) for argument in called["args"])
        named = {name: _decode(argument, values, device) for name, argument in called["kwargs"].items()}
        function = known.get(instruction.target) or _find(instruction.target)
        if _makes_tensors(function):
            named.setdefault("device", device)
        values.append(graph.call_function(function, arguments, named))
    results = [values[number] for number in (*program.results, *program.gradients.values())]
    graph.output(tuple(results) if results else values[-1])
    return fx.GraphModule(nn.Module(), graph)


def _find(target: str) -> Callable[..., Any]:
    if target == "getitem":
        return operator.getitem
    found: Any = torch.ops
    for name in target.split("."):
        found = getattr(found, name, None)
    if not isinstance(found, OpOverload) or found in _REACH_OUT:  # and not torch.ops.load_library
        raise UnknownOperatorError(f"{target} is not known to the worker")
    return found


def _makes_tensors(function: Callable[..., Any]) -> bool:
    """Whether it makes tensors of no other ones, on a device that it is told."""
    if not isinstance(function, OpOverload):
        return False
    arguments = function._schema.arguments  # noqa: SLF001 - torch has no other way to ask
    kinds = [str(each.type) for each in arguments]
    return any(each.name == "device" for each in arguments) and not any("Tensor" in kind for kind in kinds)


def _decode(argument: Any, values: Sequence[fx.Node], device: torch.device) -> Any:
    if isinstance(argument, list):
        return [_decode(item, values, device) for item in argument]
    return _decode_object(argument, values, device) if isinstance(argument, dict) else argument


def _decode_object(argument: dict[str, Any], values: Sequence[fx.Node], device: torch.device) -> Any:
    ((key, item),) = argument.items()
    match key:
        case "value":
            return values[item]
        case "device":
            return device
        case "complex":
            return complex(*item)
        case "dtype" | "layout" | "memory_format":
            return getattr(torch, item)
        case _:
            raise UnknownOperatorError(f"an argument of type {item} can't be made again")
