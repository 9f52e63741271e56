"""The one-pass engine: it batches whatever waits, step by step."""

from collections.abc import Callable, Sequence
from typing import Protocol

from headway.core.infer import InferOutput, InferRequest, InferSequence
from headway.encoder.limits import EncoderLimits
from headway.encoder.queue import InferQueue
from headway.encoder.stats import EncoderStats


class EncoderRunner(Protocol):
    """Computes batches."""

    def execute(self, sequences: Sequence[InferSequence]) -> list[bytes]:
        """The vector of each sequence, float32."""


class EncoderEngine:
    """Turns sequences into vectors. It belongs to one thread, as `headway.engine.engine.Engine` does."""

    def __init__(self, limits: EncoderLimits, *, runner: EncoderRunner, clock: Callable[[], float]) -> None:
        """`clock` gives monotonic seconds."""
        self._limits = limits
        self._queue = InferQueue(limits)
        self._runner = runner
        self._clock = clock
        self._num_steps = 0
        self._num_tokens = 0
        self._duration_s = 0.0

    @property
    def has_work(self) -> bool:
        return len(self._queue) > 0

    def submit(self, request: InferRequest) -> None:
        """Queues a request; its output comes from the step that computes its last sequence.

        Raises:
            AlreadyExistsError: a request with this id has not ended yet.
            InvalidArgumentError: a sequence is empty, too long, or holds an unknown token.
        """
        self._limits.check(request)
        self._queue.add(request)

    def cancel(self, request_id: str) -> bool:
        """Drops a request; no output of it follows. False if it is unknown or has ended."""
        return self._queue.remove(request_id)

    def step(self) -> list[InferOutput]:
        """Computes one batch and returns the requests that are complete.

        What the runner raises passes through and leaves every request as it was.
        """
        started_s = self._clock()
        batch = self._queue.next_batch()
        sequences = [sequence for _, sequence in batch]
        outputs = self._queue.commit(batch, self._runner.execute(sequences) if sequences else [])
        self._num_tokens = sum(len(sequence.token_ids) for sequence in sequences)
        self._duration_s = self._clock() - started_s
        self._num_steps += 1
        return outputs

    def fail_all(self, error: str) -> list[InferOutput]:
        """Ends every request with an error."""
        return self._queue.fail_all(error)

    def stats(self) -> EncoderStats:
        num_running = len({pending.request.request_id for pending, _ in self._queue.next_batch()})
        return EncoderStats(
            num_steps=self._num_steps,
            num_running=num_running,
            num_waiting=len(self._queue) - num_running,
            num_pending_tokens=self._queue.num_pending_tokens,
            num_tokens=self._num_tokens,
            duration_s=self._duration_s,
        )
