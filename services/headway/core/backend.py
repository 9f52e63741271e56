"""Backends, and which part of a program each one runs."""

from dataclasses import dataclass
from enum import StrEnum

from headway.core.errors import InvalidArgumentError

EAGER = "eager"
"""The backend that runs anything: torch, operator by operator."""


class BackendKind(StrEnum):
    """What a backend makes of several operators (Collage section 2.1)."""

    OPERATORS = "operators"
    """It runs kernels one by one: neighbours gain nothing from being one engine."""
    GRAPH = "graph"
    """It optimises across kernels: the more neighbours are one engine, the better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """A kernel library, with all that its times depend on.

    Attributes:
        name: such as 'openvino'.
        version: of the library.
        precision: what it computes products in; tensors between engines stay as the model has them.
    """

    name: str
    version: str = ""
    kind: BackendKind = BackendKind.GRAPH
    precision: str = "float32"

    def __str__(self) -> str:
        return self.name if self.precision == "float32" else f"{self.name}-{self.precision}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """Instructions of a program that one backend runs as a whole.

    Attributes:
        positions: of the instructions, in order. Views through which they read come with them.
    """

    backend: Backend
    positions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendPlacement:
    """Which backend runs what of a program.

    Attributes:
        engines: in an order in which they can run; together all instructions but views, each once.
        constants: the program's inputs that never change, such as weights, so that a backend may fold them.
        trial: counts measurements of the same placement: finalists are timed once more, in turns with each other.
    """

    engines: tuple[Engine, ...]
    constants: tuple[int, ...] = ()
    trial: int = 0

    def __post_init__(self) -> None:
        positions = [at for engine in self.engines for at in engine.positions]
        if len(positions) != len(set(positions)):
            twice = min(at for at in positions if positions.count(at) > 1)
            raise InvalidArgumentError(f"Instruction {twice} is in two engines.", field="engines")
