"""One pass over a model, predicted from its graph and measured in eager torch."""

from dataclasses import dataclass

import torch

from benchmarks.profile.points import ModelPoint
from headway.core.cost.costs import Costs, GraphTime, graph_time
from headway.core.graph import Graph
from headway.profiler.capture.graph import build_graph
from headway.profiler.capture.trace import trace
from headway.worker.calibration.timer import Timer

_WARM_UPS = 2
_PASSES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The predicted and the measured time of one pass.

    Attributes:
        stated_error: what the profile says of its own prediction.
        seconds_by_kind: of the prediction, by kind of operator.
    """

    point: str
    num_operators: int
    predicted_s: float
    measured_s: float
    stated_error: float
    seconds_by_kind: dict[str, float]

    @property
    def error(self) -> float:
        """Relative error of the prediction, signed, of the measured seconds."""
        return self.predicted_s / self.measured_s - 1


def capture_point(point: ModelPoint) -> Graph:
    module, inputs = point.make("meta")
    return build_graph(trace(module, inputs, train=False, report=lambda _: None), name=str(point), is_training=False)


def measure_point(point: ModelPoint, timer: Timer) -> list[float]:
    """Times some passes, in seconds."""
    module, inputs = point.make("cpu")
    with torch.inference_mode():
        timer.rounds(lambda: module(*inputs), _WARM_UPS)
        return [timer.rounds(lambda: module(*inputs), 1) for _ in range(_PASSES)]


def predict(graph: Graph, costs: Costs, *, measured_s: float) -> Prediction:
    predicted: GraphTime = graph_time(graph, costs)
    seconds_by_kind: dict[str, float] = {}
    for operator, time in zip(graph.operators, predicted.operators, strict=True):
        seconds_by_kind[operator.kind.value] = seconds_by_kind.get(operator.kind.value, 0.0) + time.seconds
    return Prediction(
        point=graph.name,
        num_operators=len(graph.operators),
        predicted_s=predicted.seconds,
        measured_s=measured_s,
        stated_error=predicted.relative_error,
        seconds_by_kind=seconds_by_kind,
    )
