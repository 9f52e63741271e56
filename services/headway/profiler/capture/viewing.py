"""Operators that view a tensor in another way and move no bytes."""

from collections.abc import Callable, Sequence
from typing import Any

from torch._ops import OpOverload

from headway.profiler.capture.view import View

Viewing = Callable[[View, Sequence[Any], tuple[int, ...]], View]
_SPLITS = ("split", "split_with_sizes", "chunk", "tensor_split", "unbind", "unsafe_split", "unsafe_chunk")


def is_view(op: OpOverload) -> bool:
    """Whether the result shares the first argument's bytes."""
    name = op._schema.name  # noqa: SLF001 - its only name
    return name.startswith("aten::") and (op.is_view or name == "aten::_unsafe_view")


def follow(op: OpOverload, view: View, arguments: Sequence[Any], shapes: Sequence[tuple[int, ...]]) -> Any:
    """Returns the view that a viewing operator gives, or one for each part of a split.

    Args:
        arguments: the operator's arguments after the tensor, in the order of the schema.
        shapes: shapes of the results.
    """
    name = op._schema.name.removeprefix("aten::")  # noqa: SLF001
    if name in _SPLITS:
        return tuple(_part(name, view, arguments, shape) for shape in shapes)
    (shape,) = shapes
    rule = _VIEWINGS.get(name)
    return view.lost(shape) if rule is None else rule(view, arguments, shape)


def _part(name: str, view: View, arguments: Sequence[Any], shape: tuple[int, ...]) -> View:
    dim = int(arguments[0 if name == "unbind" else 1]) % len(view.shape)
    return view.select(dim) if name == "unbind" else view.narrow(dim, shape[dim])


def _transpose(view: View, arguments: Sequence[Any], _: tuple[int, ...]) -> View:
    order = list(range(len(view.shape)))
    first, second = (int(dim) % len(order) for dim in arguments[:2])
    order[first], order[second] = order[second], order[first]
    return view.permute(order)


def _slice(view: View, arguments: Sequence[Any], shape: tuple[int, ...]) -> View:
    dim = int(arguments[0]) % len(view.shape)
    return view.narrow(dim, shape[dim], start=int(arguments[1] or 0), step=int(arguments[3]))


def _permute(view: View, arguments: Sequence[Any], _: tuple[int, ...]) -> View:
    return view.permute([int(dim) % len(view.shape) for dim in arguments[0]])


def _reshape(view: View, _: Sequence[Any], shape: tuple[int, ...]) -> View:
    return view.reshape(shape)


_VIEWINGS: dict[str, Viewing] = {
    **dict.fromkeys(("view", "_unsafe_view", "reshape", "squeeze", "unsqueeze", "flatten", "_reshape_alias"), _reshape),
    **dict.fromkeys(("detach", "alias", "lift_fresh"), lambda view, _, __: view),
    "expand": lambda view, _, shape: view.expand(shape),
    "permute": _permute,
    "t": lambda view, _, __: view.permute(range(len(view.shape))[::-1]),
    "transpose": _transpose,
    "slice": _slice,
    "select": lambda view, arguments, _: view.select(int(arguments[0]) % len(view.shape)),
}
