"""Runs the parts of stages: what an executor calls where its list says that a part runs."""

import time
from collections.abc import Mapping, Sequence
from typing import Protocol

import torch

from headway.core.execution.execution import ActionKind, Execution
from headway.core.execution.forward import without_dropout
from headway.core.execution.parts import StepParts
from headway.core.execution.sharded import step_parts
from headway.core.program import Program, Value
from headway.programs.module import build_module
from headway.train.team import Team


class PartRunner(Protocol):
    """Gives the results of a part: the slots that it fills, then gradients."""

    def run(self, part: int, values: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]: ...


class ComputingParts:
    """Runs parts as torch functions. No autograd runs: the backward pass is part of the captured step.

    Args:
        cuts: by stage; only parts of these stages are run.
        teams: of each stage whose ranks share its operators, how they move values.
        trains: else there are forward passes only, without dropout.
    """

    def __init__(
        self,
        execution: Execution,
        cuts: Mapping[int, StepParts],
        *,
        teams: Mapping[int, Team] | None = None,
        trains: bool = True,
    ) -> None:
        device = torch.device("cpu")
        own = {stage: team.functions() for stage, team in (teams or {}).items()}
        self._functions = {
            at: build_module(program if trains else without_dropout(program), device, own.get(part.stage, {})).forward
            for at, part in enumerate(execution.parts)
            if part.stage in cuts and (trains or part.kind is ActionKind.FORWARD)
            for program in [cuts[part.stage].parts[at].cut.program]
        }

    def run(self, part: int, values: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        results: Sequence[torch.Tensor] = self._functions[part](*values)
        return results


class SleepingParts:
    """Takes the time of parts and computes nothing: what ranks exchange is real.

    Args:
        seconds: of a run of each part.
    """

    def __init__(self, execution: Execution, cuts: Mapping[int, StepParts], seconds: Sequence[float]) -> None:
        self._seconds = seconds
        self._results = {
            at: [_zeros(cut.program.value(number)) for number in cut.program.results]
            for at, part in enumerate(execution.parts)
            if part.stage in cuts
            for cut in [cuts[part.stage].parts[at].cut]
        }

    def run(self, part: int, values: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:  # noqa: ARG002 - none is read
        time.sleep(self._seconds[part])
        return self._results[part]


class TimedParts:
    """Runs parts and notes when each began and ended, by a clock that the processes of a machine share.

    Attributes:
        runs: the part, its begin and its end in seconds, in order.
    """

    def __init__(self, runner: PartRunner) -> None:
        self._runner = runner
        self.runs: list[tuple[int, float, float]] = []

    @property
    def busy_s(self) -> float:
        return sum(end_s - began_s for _, began_s, end_s in self.runs)

    def run(self, part: int, values: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        began_s = time.monotonic()
        results = self._runner.run(part, values)
        self.runs.append((part, began_s, time.monotonic()))
        return results


def _zeros(value: Value) -> torch.Tensor:
    return torch.zeros(value.shape, dtype=getattr(torch, value.dtype))


def stage_cuts(execution: Execution, programs: Mapping[int, Program], rank: int) -> dict[int, StepParts]:
    """Of each stage of a rank, the parts of the step with as many examples as its runs have.

    Args:
        programs: by that number.
    """
    own = {number: stage.examples for number, stage in enumerate(execution.stages) if rank in stage.ranks}
    cuts = {
        count: step_parts(
            programs[count], execution.stages, count, splits=execution.splits, num_slices=execution.num_slices
        )
        for count in set(own.values())
    }
    return {number: cuts[count] for number, count in own.items()}
