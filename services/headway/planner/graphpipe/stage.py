"""A stage of a pipeline: what it takes and what it holds. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from headway.planner.graphpipe.problem import Floats, PipelineProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLoad:
    """The work of a set of operators.

    Attributes:
        forward_s, backward_s: [sizes]; of 1, 2, 4, ... samples on one device.
        crossing_bytes: of one sample, between the set and all others; gradients go the other way.
    """

    forward_s: Floats
    backward_s: Floats
    state_bytes: float
    saved_bytes: float
    gradient_bytes: float
    crossing_bytes: float

    def time_per_sample(self, problem: PipelineProblem, *, micro_batch: int, num_devices: int) -> float:
        """Seconds of one sample, with its share of what happens once an iteration: TPS of equation 1.

        Infinite where a device's part of the micro-batch is no whole number of samples, or has no time.
        """
        forward_s, backward_s = self.pass_s(problem, micro_batch=micro_batch, num_devices=num_devices)
        sync_s = self.sync_s(problem, num_devices=num_devices)
        return (forward_s + backward_s) / micro_batch + sync_s / problem.batch

    def pass_s(self, problem: PipelineProblem, *, micro_batch: int, num_devices: int) -> tuple[float, float]:
        """Seconds of one micro-batch forward and backward, receiving and sending included."""
        if micro_batch % num_devices:
            return np.inf, np.inf
        size = (micro_batch // num_devices).bit_length() - 1
        if size >= problem.num_sizes:
            return np.inf, np.inf
        handover_s = self.crossing_bytes * micro_batch / (num_devices * problem.handover_bytes_per_s)
        return float(self.forward_s[size] + handover_s), float(self.backward_s[size] + handover_s)

    def sync_s(self, problem: PipelineProblem, *, num_devices: int) -> float:
        """Seconds of the all-reduce of gradients, once an iteration."""
        return 2 * (num_devices - 1) / num_devices * self.gradient_bytes / problem.sync_bytes_per_s

    def device_bytes(self, *, in_flight: int, num_devices: int) -> float:
        """What each device holds.

        Args:
            in_flight: samples, over all devices of the stage.
        """
        return self.state_bytes + self.saved_bytes * in_flight / num_devices


def stage_load(problem: PipelineProblem, operators: Iterable[int]) -> StageLoad:
    inside = sorted(operators)
    members = set(inside)
    return StageLoad(
        forward_s=problem.forward_s[inside].sum(axis=0),
        backward_s=problem.backward_s[inside].sum(axis=0),
        state_bytes=float(problem.state_bytes[inside].sum()),
        saved_bytes=float(problem.saved_bytes[inside].sum()),
        gradient_bytes=float(problem.gradient_bytes[inside].sum()),
        crossing_bytes=sum(
            flow.bytes_per_sample
            for flow in problem.flows
            if len({flow.producer in members, *(consumer in members for consumer in flow.consumers)}) > 1
        ),
    )
