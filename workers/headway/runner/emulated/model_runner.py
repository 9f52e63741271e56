"""Takes as long for the engine's batches as a group of devices would."""

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from headway.core.cache_sharding import ShardWork
from headway.core.errors import FailedPreconditionError
from headway.core.latency import LatencyModel
from headway.core.model import ModelSpec
from headway.core.request import Guide, TokenLogprobs
from headway.engine.batch import ScheduledSequence, StepBatch, StepResult
from headway.runner.emulated.blocks import EmulatedBlocks
from headway.runner.emulated.line import Line, Queued
from headway.runner.emulated.sampler import NO_GUIDE, EmulatedSampler, certain
from headway.runner.parallel.collective_counters import CollectiveCounters


@dataclass(frozen=True, slots=True)
class _InFlightBatch:
    batch: StepBatch
    queued: Queued


class EmulatedModelRunner:
    """Implements `headway.worker.runners.GeneratorRunner`, at a lone worker or at the leader of a group.

    A batch with a sequence of the one that was finished last has been ready since that was due, not since the engine
    got to it: what the engine takes of a step is in the latency already, and nothing adds up over many steps.

    Args:
        stage_latencies: of a step, in each stage of the group's pipeline.
        line: the group's; its other models are in it too.
    """

    weight_bytes = 0  # it holds none

    def __init__(self, spec: ModelSpec, *, stage_latencies: Sequence[LatencyModel], line: Line) -> None:
        self.spec = spec
        self.blocks = EmulatedBlocks()
        self.traffic = CollectiveCounters()
        self.shard_work = ShardWork()
        self._latencies = stage_latencies
        self._line = line
        self._sampler = EmulatedSampler(vocab_size=spec.vocab_size, eos_token_ids=spec.eos_token_ids)
        self._clock = line.clock
        self._in_flight: deque[_InFlightBatch] = deque()
        self._last_due_s = 0.0
        self._last_request_ids: Collection[str] = ()

    def prepare(self, _guide: Guide) -> str:
        """It follows none, and says so."""
        return NO_GUIDE

    def start(self, batch: StepBatch) -> None:
        goes_on = any(scheduled.sequence.request_id in self._last_request_ids for scheduled in batch.sequences)
        ready_s = self._last_due_s if goes_on else self._clock.now_s()
        stage_s = [step_s(latency, batch) if batch.sequences else 0.0 for latency in self._latencies]
        self._in_flight.append(_InFlightBatch(batch, self._line.queue(ready_s, stage_s)))

    def finish(self) -> StepResult:
        in_flight = self._in_flight.popleft()
        self._last_due_s = self._line.sleep_until_due(in_flight.queued)
        scheduled_sequences = in_flight.batch.sequences
        self._last_request_ids = {scheduled.sequence.request_id for scheduled in scheduled_sequences}
        return StepResult(
            self._sampler.sample(scheduled_sequences), [_score_prompt(scheduled) for scheduled in scheduled_sequences]
        )

    def measure(self, **_load: int) -> float:
        """FailedPreconditionError: there is nothing to measure."""
        raise nothing_to_measure()

    def close(self) -> None:
        while self._in_flight:
            self.finish()


def step_s(latency: LatencyModel, batch: StepBatch) -> float:
    """Seconds of a batch: a scheduled sequence of one token that gives a token is a decode, every other one prefill."""
    prefill_tokens, prefill_pairs, num_decodes, context_tokens = 0, 0.0, 0, 0
    for scheduled in batch.sequences:
        if scheduled.samples and scheduled.num_new_tokens == 1:
            num_decodes += 1
            context_tokens += scheduled.start
        else:
            prefill_tokens += scheduled.num_new_tokens
            prefill_pairs += scheduled.num_new_tokens * (scheduled.start + scheduled.num_new_tokens / 2)
    decode_s = latency.decode_s(num_decodes=num_decodes, context_tokens=context_tokens)
    return decode_s + latency.per_prefill_token_s * prefill_tokens + latency.per_prefill_pair_s * prefill_pairs


def nothing_to_measure() -> FailedPreconditionError:
    return FailedPreconditionError(
        "An emulated device has nothing to measure: its steps take what the plan says.",
        hint="Profile the model on a real device.",
    )


def _score_prompt(scheduled: ScheduledSequence) -> tuple[TokenLogprobs, ...]:
    """Returns log probabilities for the prompt tokens that follow the scheduled sequence's own, where they are asked
    for.
    """
    sequence = scheduled.sequence
    if (num_top := sequence.sampling.num_prompt_logprobs) is None:
        return ()
    first, end = scheduled.start + 1, scheduled.start + scheduled.num_new_tokens + 1
    return tuple(
        certain(token, num_top=num_top) for token in sequence.token_ids[first : min(end, sequence.num_prompt_tokens)]
    )
