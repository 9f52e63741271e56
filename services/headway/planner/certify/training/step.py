"""A training step as a plan spreads it over stages: the facts that several checks read."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from headway.core.batching import at_batch
from headway.core.dataflow import Dataflow
from headway.core.gradients import contributions, primals
from headway.core.graph import Graph, Operator, TensorRole, TensorSpec
from headway.core.plan.training import TrainingPlan, TrainingStage
from headway.core.precision import Precision, cast_graph


@dataclass(frozen=True)
class PlannedStep:
    """A plan and the graph of one of its micro-batches. Stages are named by their index.

    Attributes:
        graph: of the largest micro-batches, where stages have sizes of their own; see `of`.
    """

    plan: TrainingPlan
    graph: Graph

    def of(self, number: int) -> "PlannedStep":
        """The step with the graph of one of a stage's own micro-batches."""
        size = self.plan.stages[number].micro_batch
        if size is None or size == self.graph.batch:
            return self
        if size not in self._sized:
            self._sized[size] = PlannedStep(self.plan, at_batch(self.graph, size))
        return self._sized[size]

    @cached_property
    def _sized(self) -> "dict[int, PlannedStep]":
        return {}

    @cached_property
    def tensors(self) -> dict[str, TensorSpec]:
        return self.graph.tensors_by_name()

    @cached_property
    def cast_tensors(self) -> dict[str, TensorSpec]:
        """The tensors in the plan's precision, unless the graph has its weights in one of its own."""
        weights = [tensor for tensor in self.graph.tensors if tensor.role is TensorRole.PARAMETER]
        if any(weight.dtype != Precision.FLOAT32 for weight in weights):
            return self.tensors
        return cast_graph(self.graph, Precision(self.plan.precision)).tensors_by_name()

    @cached_property
    def operators(self) -> dict[str, Operator]:
        return {operator.name: operator for operator in self.graph.operators}

    @cached_property
    def flow(self) -> Dataflow:
        return Dataflow(self.graph)

    @cached_property
    def primals(self) -> dict[str, str]:
        """Of gradients the tensors that they are gradients of."""
        return primals(self.graph)

    @cached_property
    def contributions(self) -> dict[str, str]:
        """Parts of parameters' gradients that are added up, with the parameters."""
        return contributions(self.graph)

    @cached_property
    def stage_of(self) -> dict[str, int]:
        """The stage of each operator, by the operator's name."""
        return {name: number for number, stage in enumerate(self.plan.stages) for name in stage.operators}

    def maker(self, tensor: str) -> Operator | None:
        """The operator that makes a tensor; None for parameters, buffers and inputs."""
        at = self.flow.producer.get(tensor)
        return None if at is None else self.graph.operators[at]

    def operators_of(self, stage: TrainingStage) -> Iterator[Operator]:
        return (self.operators[name] for name in stage.operators)

    def received(self, number: int) -> list[str]:
        """Tensors that a stage's operators read and other stages make, in the order in which they are read; without
        gradients of parameters that stages share, which are joined once an iteration."""
        found: dict[str, None] = {}
        for operator in self.operators_of(self.plan.stages[number]):
            for name in operator.inputs:
                maker = self.maker(name)
                if maker is not None and self.stage_of[maker.name] != number and name not in self.contributions:
                    found[name] = None
        return list(found)
