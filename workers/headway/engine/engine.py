"""The engine: requests in, tokens out, one step at a time."""

from collections.abc import Callable

from headway.core.request import GenerationRequest, SequenceOutput
from headway.engine.batch import Runner, StepResult
from headway.engine.config import EngineConfig
from headway.engine.events import BlockEventLog
from headway.engine.scheduler import Scheduler
from headway.engine.sequence import Sequence
from headway.engine.stats import StepStats


class Engine:
    """Generates tokens for many requests at once.

    It belongs to one thread: its owner calls every method from there, and steps while `has_work`. Only `events` may
    be read from elsewhere.

    Attributes:
        config: its limits.
        events: what the prefix cache gained and lost.
    """

    def __init__(self, config: EngineConfig, *, runner: Runner, clock: Callable[[], float]) -> None:
        """`clock` gives monotonic seconds."""
        self.config = config
        self.events = BlockEventLog(num_events=config.num_logged_events)
        self._scheduler = Scheduler(config, events=self.events)
        self._runner = runner
        self._clock = clock
        self._num_steps = 0
        self._duration_s = 0.0

    @property
    def has_work(self) -> bool:
        return self._scheduler.has_work

    def submit(self, request: GenerationRequest) -> None:
        """Queues a request; its outputs come from the steps to follow, the last one with a finish reason.

        Raises:
            AlreadyExistsError: a request with this id has not ended yet.
            InvalidArgumentError: the prompt is empty, too long to be answered here, or holds an unknown token.
        """
        self._scheduler.add(Sequence.from_request(request, arrival_s=self._clock()))

    def cancel(self, request_id: str) -> bool:
        """Frees a request's blocks at once; no output of it follows. False if it is unknown or has ended."""
        return self._scheduler.cancel(request_id)

    def step(self) -> list[SequenceOutput]:
        """Computes one batch and returns what it brought, at most one output for each request.

        What the runner raises passes through and leaves every sequence as it was before the step: the owner may step
        again, or give up with `fail_all`.
        """
        started_s = self._clock()
        batch = self._scheduler.schedule()
        result = self._runner.execute(batch) if batch.sequences else StepResult([], [], [])
        outputs = self._scheduler.commit(batch, result)
        self._duration_s = self._clock() - started_s
        self._num_steps += 1
        return outputs

    def fail_all(self, error: str) -> list[SequenceOutput]:
        """Ends every request with an error, frees all blocks, and returns the last outputs."""
        return self._scheduler.fail_all(error)

    def stats(self) -> StepStats:
        scheduler, blocks = self._scheduler, self._scheduler.blocks
        return StepStats(
            num_steps=self._num_steps,
            num_running=scheduler.num_running,
            num_waiting=scheduler.num_waiting,
            num_context_tokens=scheduler.num_context_tokens,
            num_pending_prefill_tokens=scheduler.num_pending_prefill_tokens,
            num_preemptions=scheduler.num_preemptions,
            num_used_blocks=blocks.num_used_blocks,
            num_cached_blocks=blocks.num_cached_blocks,
            num_free_blocks=blocks.num_free_blocks,
            num_prefix_queries=scheduler.num_prefix_queries,
            num_prefix_hits=scheduler.num_prefix_hits,
            num_prefill_tokens=scheduler.num_prefill_tokens,
            num_decode_tokens=scheduler.num_decode_tokens,
            duration_s=self._duration_s,
        )

    def check_integrity(self) -> None:
        """Asserts that the engine's books are right: every block has exactly one state, every sequence one place."""
        self._scheduler.check_integrity()
