"""What rounds of measurements come to: the machine's speed changes from one to the next, and within one little."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.steps.part import MODEL_PARTS, Part
from benchmarks.steps.stack import COMPUTE, StackSteps

ARITHMETIC, ENGINE = "worker: the model's arithmetic", "worker: engine besides it"


@dataclass(frozen=True, slots=True)
class Round:
    """One measurement of an engine alone, and right after it of a stack.

    Attributes:
        part_s: of a step of the engine, by part.
    """

    part_s: Mapping[str, float]
    stack: StackSteps

    @property
    def publishing_s(self) -> float:
        """What a step of the stack takes longer than one of the engine; below 0 where the machine was faster then."""
        return self.stack.interval_s - sum(self.part_s.values())


def median_parts_s(rounds: Sequence[Round]) -> dict[str, float]:
    """By part, of publishing too."""
    parts = {part: median(round_.part_s[part] for round_ in rounds) for part in rounds[0].part_s}
    return {**parts, Part.PUBLISHING: max(median(round_.publishing_s for round_ in rounds), 0.0)}


def processor_parts_s(parts: Mapping[str, float], stack: StackSteps) -> dict[str, float]:
    """Of a step in the stack, the processor time of its processes, the worker's threads that compute in two parts.

    What the engine does besides the model it does in one thread, and alone in the time that it takes there.
    """
    engine_s = sum(parts[part] for part in parts if part not in MODEL_PARTS and part != Part.PUBLISHING)
    others_s = {name: seconds for name, seconds in stack.cpu_s.items() if name != COMPUTE}
    return {ARITHMETIC: stack.cpu_s[COMPUTE] - engine_s, ENGINE: engine_s, **others_s}


def median_stack(rounds: Sequence[Round]) -> StackSteps:
    """The median of each figure by itself."""
    stacks = [round_.stack for round_ in rounds]
    return StackSteps(
        interval_s=median(stack.interval_s for stack in stacks),
        cpu_s={name: median(stack.cpu_s.get(name, 0.0) for stack in stacks) for name in stacks[0].cpu_s},
        output_tokens_per_s=median(stack.output_tokens_per_s for stack in stacks),
    )
