"""The question that a training plan answers. Pure."""

from dataclasses import dataclass, field

from headway.core.dataflow import out_of_order
from headway.core.errors import InvalidArgumentError
from headway.core.graph import Graph
from headway.core.precision import Precision
from headway.core.training_cluster import TrainingCluster
from headway.planner.training.space import SearchSpace


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingProblem:
    """Attributes:
    model: as the user named it.
    graph: of a training step, captured with two examples or more.
    batch: examples of one iteration.
    num_layers: that operators are clustered into; None for as many as the model repeats.
    micro_batches: numbers of micro-batches to try; empty for all powers of two that divide the batch.
    """

    model: str
    graph: Graph
    cluster: TrainingCluster
    batch: int
    precision: Precision = Precision.FLOAT32
    space: SearchSpace = field(default_factory=SearchSpace)
    num_layers: int | None = None
    micro_batches: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise InvalidArgumentError(f"batch is {self.batch}.", hint="Give 1 or more examples.", field="batch")
        if not self.graph.is_training or not self.graph.gradients:
            raise InvalidArgumentError(
                f"{self.model} is no training step.", hint="Capture it with its backward pass.", field="model"
            )
        if (wrong := out_of_order(self.graph.operators)) is not None:
            raise InvalidArgumentError(
                f"The operators of {self.model} cannot run in their order: {wrong}.",
                hint="A step is a sequence in which each operator reads what earlier ones made; it has no cycle.",
                field="graph",
            )
        for number in self.micro_batches:
            if number < 1 or self.batch % number:
                raise InvalidArgumentError(
                    f"A batch of {self.batch} does not divide into {number} micro-batches.",
                    hint=f"Give numbers that divide it: {', '.join(map(str, _divisors(self.batch)))}.",
                    field="micro_batches",
                )

    def numbers_of_micro_batches(self) -> list[int]:
        """The numbers to try, ascending: of those that divide the batch the powers of two, and the batch itself."""
        if self.micro_batches:
            return sorted(set(self.micro_batches))
        return [number for number in _divisors(self.batch) if number & (number - 1) == 0 or number == self.batch]


def _divisors(number: int) -> list[int]:
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})
