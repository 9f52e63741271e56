"""A decode of a few long sequences, whose keys and values nobody has to compute first."""

from dataclasses import dataclass
from statistics import median

from benchmarks.parallel.burst import BLOCK_SIZE
from benchmarks.parallel.volume import StepShape
from headway.runner.model_runner import ModelRunner

NUM_TIMINGS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class LongDecode:
    """One token for each of `num_sequences`, after `context_tokens`."""

    num_sequences: int
    context_tokens: int

    def __str__(self) -> str:
        return f"{self.num_sequences} x {self.context_tokens}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """
    Attributes:
        step_s: median of several steps.
        short_s: of the same with one block of context: what is not attention.
        waiting_share: of the steps, the leader's time in collectives.
        shapes: of all steps that were run.
    """

    step_s: float
    short_s: float
    waiting_share: float
    shapes: tuple[StepShape, ...]

    @property
    def attention_share(self) -> float:
        return 1 - self.short_s / self.step_s


def time_decode(decode: LongDecode, runner: ModelRunner) -> Timing:
    waited_s = runner.group.traffic.seconds
    steps_s = _time(decode.num_sequences, decode.context_tokens, runner)
    waiting_s = (runner.group.traffic.seconds - waited_s) / (2 * NUM_TIMINGS)  # each is warmed up by another
    short_s = _time(decode.num_sequences, BLOCK_SIZE - 1, runner)
    rows = tuple(range(decode.num_sequences))
    shape = StepShape(num_tokens=decode.num_sequences, wanted_rows=rows, best_rows=rows)
    return Timing(
        step_s=median(steps_s),
        short_s=median(short_s),
        waiting_share=waiting_s / median(steps_s),
        shapes=(shape,) * (4 * NUM_TIMINGS),
    )


def _time(num_decodes: int, context_tokens: int, runner: ModelRunner) -> list[float]:
    return [
        runner.measure(prefill_tokens=0, num_decodes=num_decodes, context_tokens=context_tokens)
        for _ in range(NUM_TIMINGS)
    ]
