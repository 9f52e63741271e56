"""Runners around and in place of the real one: the seam where an engine can be watched, or run without a model."""

from collections import deque
from collections.abc import Callable

from benchmarks.engine.clock import VirtualClock
from headway.core.latency import LatencyModel
from headway.engine.batch import Runner, Sample, ScheduledSequence, StepBatch, StepResult

TOKEN = Sample((11,))

Observe = Callable[[StepBatch], None]


class ObservedRunner:
    """Shows each batch to an observer, blocks for it given out and nothing computed yet, and passes it on."""

    def __init__(self, runner: Runner, *, observe: Observe) -> None:
        self._runner = runner
        self._observe = observe

    def start(self, batch: StepBatch) -> None:
        self._observe(batch)
        self._runner.start(batch)

    def finish(self) -> StepResult:
        return self._runner.finish()


class SimulatedRunner:
    """Samples one and the same token, and lets a step take as long as a latency model says.

    Args:
        copy_block_s: of one block between device and host, or within the device.
    """

    def __init__(self, latency: LatencyModel, *, clock: VirtualClock, copy_block_s: float = 0.0) -> None:
        self._latency = latency
        self._clock = clock
        self._copy_block_s = copy_block_s
        self._started: deque[StepBatch] = deque()

    def start(self, batch: StepBatch) -> None:
        self._started.append(batch)

    def finish(self) -> StepResult:
        batch = self._started.popleft()
        num_copies = len(batch.swap_out) + len(batch.swap_in) + len(batch.block_copies)
        copy_s = num_copies * self._copy_block_s
        step_s = self._latency.base_s + sum(self._scheduled_s(scheduled) for scheduled in batch.sequences)
        self._clock.wait_until(self._clock() + copy_s + step_s)
        samples = [
            (TOKEN,) * (1 + len(scheduled.followers)) if scheduled.samples else () for scheduled in batch.sequences
        ]
        return StepResult(samples, [()] * len(batch.sequences), copy_s)

    def _scheduled_s(self, scheduled: ScheduledSequence) -> float:
        latency, num_context = self._latency, scheduled.start
        if scheduled.num_new_tokens == 1:
            return latency.per_decode_s + latency.per_context_token_s * num_context
        num_pairs = scheduled.num_new_tokens * (num_context + scheduled.num_new_tokens / 2)
        return latency.per_prefill_token_s * scheduled.num_new_tokens + latency.per_prefill_pair_s * num_pairs
