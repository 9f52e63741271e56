"""Parts of stages, foretold from their operators, each of which was timed alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle

import torch

from headway.backends.inputs import make_input
from headway.core.execution.execution import Execution
from headway.core.program import Program
from headway.core.program_parts import ProgramParts
from headway.programs.module import build_module
from headway.train.parts import stage_cuts
from headway.worker.calibration.timer import Timer

_DEVICE = torch.device("cpu")
_MOST_INPUTS = 256


@dataclass
class OperatorTimes:
    """Seconds of programs on one thread, by its own clock, so that what else the machine does counts little; each is
    timed once."""

    timer: Timer = field(default_factory=lambda: Timer.of(_DEVICE, num_threads=1))
    known: dict[tuple[str, int], float] = field(default_factory=dict)

    def of_operators(self, program: Program) -> float:
        """Of all operators of a program, one by one; between two calls of one as much memory is read as the program
        holds, so that caches are as warm as they are in it."""
        parts = ProgramParts(program)
        return sum(self.of_program(parts.alone([at])[0], program.peak_bytes) for at in parts.operators)

    def of_program(self, program: Program, span_bytes: int = 0) -> float:
        """Of a program as it is.

        Args:
            span_bytes: that inputs take which are read in turn.
        """
        num_inputs = min(_MOST_INPUTS, max(1, span_bytes // max(1, program.input_bytes)))
        key = program.content_hash, num_inputs
        if key not in self.known:
            generator = torch.Generator().manual_seed(0)
            module = build_module(program, _DEVICE)
            given = cycle(
                [
                    [make_input(value, device=_DEVICE, generator=generator) for value in program.inputs]
                    for _ in range(num_inputs)
                ]
            )
            with torch.no_grad():
                seconds, slower = self.timer.time(lambda: module(*next(given)))
            self.known[key] = seconds * (1 + slower)
        return self.known[key]


def part_programs(execution: Execution, programs: Mapping[int, Program]) -> Sequence[Program]:
    """What each part runs."""
    cuts = stage_cuts(execution, programs)
    return [cuts[part.stage].parts[at].cut.program for at, part in enumerate(execution.parts)]
