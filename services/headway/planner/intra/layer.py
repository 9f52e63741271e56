"""A layer: a run of forward operators with all their backward ones, which are never put on different devices. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Operators are named by their positions in the graph.

    Attributes:
        entering: activations of earlier layers that this or later ones read.
        leaving: activations of this or earlier layers that later ones read.
    """

    forward: tuple[int, ...]
    backward: tuple[int, ...] = ()
    entering: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()
