"""Parts of stages, foretold from their operators, each of which was timed alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from headway.backends.inputs import make_input
from headway.core.execution.execution import Execution
from headway.core.program import Program
from headway.core.program_parts import ProgramParts
from headway.programs.module import build_module
from headway.train.parts import stage_cuts
from headway.worker.calibration.timer import Timer

_DEVICE = torch.device("cpu")


@dataclass
class OperatorTimes:
    """Seconds of programs on one thread, by its own clock, so that what else the machine does counts little; each is
    timed once."""

    timer: Timer = field(default_factory=lambda: Timer.of(_DEVICE, num_threads=1))
    known: dict[str, float] = field(default_factory=dict)

    def of_operators(self, program: Program) -> float:
        """Of all operators of a program, one by one."""
        parts = ProgramParts(program)
        return sum(self.of_program(parts.alone([at])[0]) for at in parts.operators)

    def of_program(self, program: Program) -> float:
        """Of a program as it is."""
        if program.content_hash not in self.known:
            generator = torch.Generator().manual_seed(0)
            given = [make_input(value, device=_DEVICE, generator=generator) for value in program.inputs]
            module = build_module(program, _DEVICE)
            with torch.no_grad():
                seconds, slower = self.timer.time(lambda: module(*given))
            self.known[program.content_hash] = seconds * (1 + slower)
        return self.known[program.content_hash]


def part_programs(execution: Execution, programs: Mapping[int, Program]) -> Sequence[Program]:
    """What each part runs."""
    found = {
        at: part.cut.program
        for rank in range(len(execution.ranks))
        for cut in stage_cuts(execution, programs, rank).values()
        for at, part in enumerate(cut.parts)
    }
    return [found[at] for at in range(len(execution.parts))]
