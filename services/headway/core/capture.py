"""The request to capture a model as a graph, and the progress of a capture."""

from dataclasses import dataclass

from headway.core.errors import InvalidArgumentError
from headway.core.graph import Graph
from headway.core.program import Program

ZOO_PREFIX = "zoo:"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureRequest:
    """Attributes:
    source: `module:factory`, `zoo:NAME` or the path of a checkpoint directory.
    batch: examples at once.
    seq: tokens of an example; None lets the model say.
    train: capture the backward pass too.
    with_program: also what can be run again.
    lengths: also with the first so many tokens of each example, for each of these numbers.
    without_constants: a tensor that the model's code makes, which no checkpoint has, is an error.
    """

    source: str
    batch: int = 1
    seq: int | None = None
    train: bool = False
    with_program: bool = False
    lengths: tuple[int, ...] = ()
    without_constants: bool = False

    def __post_init__(self) -> None:
        for name, value in (("batch", self.batch), ("seq", self.seq)):
            if value is not None and value < 1:
                raise InvalidArgumentError(f"{name} must be 1 or more, not {value}.", field=name)

    @property
    def is_code(self) -> bool:
        """Whether it is `module:factory`. A checkpoint whose relative path has a colon counts as that too."""
        return ":" in self.source and not self.source.startswith((ZOO_PREFIX, "/"))


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureProgress:
    """The phase that was begun, in words, and at last the graph, with its program where that was asked for, and those
    with fewer tokens by their number."""

    phase: str = ""
    graph: Graph | None = None
    program: Program | None = None
    shorter: dict[str, Program] | None = None
