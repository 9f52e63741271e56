"""The one-pass engine: it batches whatever waits, step by step."""

import math
from collections import deque
from collections.abc import Callable

from headway.core.infer import InferOutput, InferRequest
from headway.core.line import QueuePolicy, rank_of
from headway.encoder.group_line import GroupLine
from headway.encoder.in_flight_batch import EncoderRunner, InFlightBatch
from headway.encoder.limits import EncoderLimits
from headway.encoder.queue import Batch, InferQueue
from headway.encoder.stats import EncoderStats

_TOO_LATE = "The request waited so long that its answer could not have been there in time; it was not computed."


class EncoderEngine:
    """Turns sequences into vectors. It belongs to one thread, as `headway.engine.engine.Engine` does.

    Attributes:
        num_failures: times that its requests had to end for a step that failed, since one succeeded.
    """

    def __init__(
        self,
        limits: EncoderLimits,
        *,
        runner: EncoderRunner,
        clock: Callable[[], float],
        queue_policy: QueuePolicy = QueuePolicy.FCFS,
    ) -> None:
        """`clock` gives monotonic seconds."""
        self._limits = limits
        self._queue_policy = queue_policy
        self._line = GroupLine()
        self._wake: Callable[[], None] = lambda: None
        self._queue = InferQueue(limits)
        self._runner = runner
        self._clock = clock
        self._in_flight: deque[tuple[Batch, InFlightBatch, float]] = deque()  # with the time of the start
        self._late: list[InferOutput] = []
        self._num_steps = 0
        self._num_tokens = 0
        self._duration_s = 0.0
        self.num_failures = 0

    @property
    def has_work(self) -> bool:
        return bool(self._queue or self._in_flight or self._late)

    @property
    def waiting_since_s(self) -> float:
        """When the oldest sequence came that is in no batch yet; infinity for none."""
        return self._queue.waiting_since_s

    @property
    def pause_s(self) -> float:
        """Seconds for which a step would do nothing, if no call comes in between; infinite until one comes."""
        return max(0.0, self.next_s - self._clock())

    @property
    def next_s(self) -> float:
        """From when on, by the clock, there is a step to take; infinite where only a call can bring one."""
        if self._late:
            return -math.inf
        next_s = self._in_flight[0][1].due_s if self._in_flight else math.inf
        return min(next_s, self._runner.free_s) if self._line.is_first(self) else next_s

    def join(self, line: GroupLine, *, wake: Callable[[], None]) -> None:
        """Takes turns with others from now on: whose request is next in line begins.

        Args:
            wake: called, from any thread, when the turn comes to this engine.
        """
        self._line, self._wake = line, wake
        self._offer()

    def leave(self) -> None:
        """Lets the others go on without this engine, which takes no more steps."""
        self._line.offer(self, None, wake=self._wake)

    def submit(self, request: InferRequest) -> None:
        """Queues a request; its output comes from the step that computes its last sequence.

        Raises:
            AlreadyExistsError: a request with this id has not ended yet.
            InvalidArgumentError: a sequence is empty, too long, or holds an unknown token.
        """
        self._limits.check(request)
        arrived_s = self._clock()
        slo_s = math.inf if request.slo_s is None else request.slo_s
        rank = rank_of(
            self._queue_policy,
            latest_start_s=arrived_s + slo_s - self._runner.duration_s(request.sequences),
            priority=request.priority,
        )
        self._queue.add(request, arrived_s=arrived_s, rank=rank)
        self._offer()

    def cancel(self, request_id: str) -> bool:
        """Drops a request; no output of it follows. False if it is unknown or has ended."""
        is_known = self._queue.remove(request_id)
        self._offer()
        return is_known

    def step(self) -> list[InferOutput]:
        """Starts a batch if the runner takes one, and returns the requests that are complete with the oldest that is
        due, if any is; and those that have become too late.

        What the runner raises passes through and leaves every request as it was.
        """
        if self._line.is_first(self) and self._runner.free_s <= self._clock():
            self._start()
        late, self._late = self._late, []
        if not self._in_flight or self._in_flight[0][1].due_s > self._clock():
            return late
        return late + self._finish_oldest()

    def _start(self) -> None:
        """Starts as large a batch as keeps its deadlines; gives the request up that cannot keep its own any more."""
        started_s = self._clock()
        head = self._queue.head
        assert head is not None, "it would not be this engine's turn"
        batch = self._queue.within_deadlines(
            self._queue.next_batch(), lambda sequences: self._runner.predict(sequences, ready_s=head.arrived_s)
        )
        if batch:
            ready_s = max(pending.arrived_s for pending, _ in batch)
            in_flight = self._runner.start([sequence for _, sequence in batch], ready_s=ready_s)
            self._queue.mark_started(batch)
            self._in_flight.append((batch, in_flight, started_s))
        else:
            self._queue.remove(head.request.request_id)
            self._late.append(InferOutput(request_id=head.request.request_id, error=_TOO_LATE, is_late=True))
        self._offer()

    def _offer(self) -> None:
        """Tells the line what this engine would begin next, and the runner since when it waits."""
        head = self._queue.head
        self._runner.wait(math.inf if head is None else head.arrived_s)
        self._line.offer(self, None if head is None else (head.rank, head.arrived_s), wake=self._wake)

    def _finish_oldest(self) -> list[InferOutput]:
        batch, in_flight, started_s = self._in_flight.popleft()
        self._queue.mark_finished(batch)
        try:
            outputs = self._queue.commit(batch, in_flight.finish())
            self.num_failures = 0
        finally:
            self._offer()
        self._num_tokens = sum(len(sequence.token_ids) for _, sequence in batch)
        self._duration_s = self._clock() - started_s
        self._num_steps += 1
        return outputs

    def recover(self, error: str) -> list[InferOutput]:
        """After a step that raised: ends every request with an error."""
        self.num_failures += 1
        outputs = self._queue.fail_all(error)
        self._offer()
        return outputs

    def stats(self) -> EncoderStats:
        batches = [batch for batch, *_ in self._in_flight] or [self._queue.next_batch()]
        num_running = len({pending.request.request_id for batch in batches for pending, _ in batch})
        return EncoderStats(
            num_steps=self._num_steps,
            num_running=num_running,
            num_waiting=max(0, len(self._queue) - num_running),
            num_pending_tokens=self._queue.num_pending_tokens,
            num_tokens=self._num_tokens,
            duration_s=self._duration_s,
        )
