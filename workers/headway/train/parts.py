"""Runs the parts of stages: what an executor calls where its list says that a part runs."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch

from headway.core.execution.accumulation import accumulating
from headway.core.execution.execution import ActionKind, Execution
from headway.core.execution.forward import without_dropout
from headway.core.execution.parts import StepParts
from headway.core.execution.sharded import step_parts
from headway.core.program import Program, Value
from headway.programs.module import build_module
from headway.train.clock import Clock, HostClock
from headway.train.device import CPU
from headway.train.team import Team


class PartRunner(Protocol):
    """Gives what fills the slots of a part, and adds its gradients to their sums. Takes all values out of their list,
    so that it holds each no longer than it needs it."""

    def run(self, part: int, values: list[torch.Tensor]) -> Sequence[torch.Tensor]: ...


class ComputingParts:
    """Runs parts as torch functions. No autograd runs: the backward pass is part of the captured step.

    Args:
        cuts: by stage; only parts of these stages are run.
        sums: of the gradients of these stages' parameters, by name, to which parts add theirs.
        teams: of each stage whose ranks share its operators, how they move values.
        functions: further ones that parts call, by their targets.
        trains: else there are forward passes only, without dropout.
        device: of all tensors.
    """

    def __init__(
        self,
        execution: Execution,
        cuts: Mapping[int, StepParts],
        *,
        sums: Mapping[str, torch.Tensor],
        teams: Mapping[int, Team] | None = None,
        functions: Mapping[str, Callable[..., torch.Tensor]] | None = None,
        trains: bool = True,
        device: torch.device = CPU,
    ) -> None:
        own = {stage: {**team.functions(), **(functions or {})} for stage, team in (teams or {}).items()}
        self._sums: dict[int, list[torch.Tensor]] = {}
        self._functions: dict[int, Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]] = {}
        self._giving = {at for at, part in enumerate(execution.parts) if part.writes}
        for at, part in enumerate(execution.parts):
            if part.stage in cuts and (trains or part.kind is ActionKind.FORWARD):
                self._sums[at] = [sums[name] for name in part.gradients]
                program = accumulating(cuts[part.stage].parts[at].cut.program, list(map(_dtype_name, self._sums[at])))
                program = program if trains else without_dropout(program)
                self._functions[at] = build_module(
                    program, device, own.get(part.stage, functions), takes_list=True
                ).forward

    def run(self, part: int, values: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        values += self._sums[part]
        results = self._functions[part](values)
        return results if part in self._giving else ()


class SleepingParts:
    """Takes the time of parts and computes nothing: what ranks exchange is real.

    Args:
        seconds: of a run of each part.
    """

    def __init__(self, execution: Execution, cuts: Mapping[int, StepParts], seconds: Sequence[float]) -> None:
        self._seconds = seconds
        self._results = {
            at: [_zeros(cut.program.value(number)) for number in cut.program.results[: len(part.writes)]]
            for at, part in enumerate(execution.parts)
            if part.stage in cuts
            for cut in [cuts[part.stage].parts[at].cut]
        }

    def run(self, part: int, values: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        values.clear()
        time.sleep(self._seconds[part])
        return self._results[part]


class TimedParts:
    """Runs parts and notes when each began and ended, by a clock that the processes of a machine share.

    Attributes:
        host_s: for how long the host was at it in this step.
    """

    def __init__(self, runner: PartRunner, clock: Clock | None = None) -> None:
        self._runner, self._clock = runner, clock or HostClock()
        self.host_s = 0.0
        self._marks: list[tuple[int, Any, Any]] = []

    @property
    def runs(self) -> list[tuple[int, float, float]]:
        """The part, its begin and its end in seconds, in order; waits for the device."""
        self._clock.wait()
        return [(part, self._clock.seconds(began), self._clock.seconds(ended)) for part, began, ended in self._marks]

    @property
    def busy_s(self) -> float:
        return sum(end_s - began_s for _, began_s, end_s in self.runs)

    def begin(self) -> None:
        """Forgets the step before."""
        self._marks.clear()
        self.host_s = 0.0
        self._clock.begin()

    def run(self, part: int, values: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        began_s, began = time.monotonic(), self._clock.mark()
        results = self._runner.run(part, values)
        self._marks.append((part, began, self._clock.mark()))
        self.host_s += time.monotonic() - began_s
        return results


def _dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _zeros(value: Value) -> torch.Tensor:
    return torch.zeros(value.shape, dtype=getattr(torch, value.dtype))


def stage_cuts(execution: Execution, programs: Mapping[int, Program], rank: int | None = None) -> dict[int, StepParts]:
    """Of each stage of a rank, or of all, the parts of the step with as many examples as its runs have.

    Args:
        programs: by that number.
    """
    stages = enumerate(execution.stages)
    own = {number: stage.examples for number, stage in stages if rank is None or rank in stage.ranks}
    cuts = {
        count: step_parts(
            programs[count], execution.stages, count, splits=execution.splits, num_slices=execution.num_slices
        )
        for count in set(own.values())
    }
    return {number: cuts[count] for number, count in own.items()}
