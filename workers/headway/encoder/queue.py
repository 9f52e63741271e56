"""Requests in line, and which of their sequences the next step computes."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from headway.core.errors import AlreadyExistsError
from headway.core.infer import InferOutput, InferRequest, InferSequence
from headway.core.line import Rank, batch_size
from headway.encoder.limits import EncoderLimits


@dataclass(slots=True, eq=False)
class Pending:
    """A request, and the vectors of its sequences so far.

    Attributes:
        arrived_s: when it came.
        rank: its place in line.
        num_in_flight: sequences, next to those that have vectors, whose batches are under way.
    """

    request: InferRequest
    arrived_s: float
    rank: Rank = ()
    vectors: list[bytes] = field(default_factory=list)
    num_in_flight: int = 0

    @property
    def deadline_s(self) -> float:
        """By which the answer must be there; infinite for no bound."""
        return math.inf if self.request.slo_s is None else self.arrived_s + self.request.slo_s

    @property
    def remaining(self) -> tuple[InferSequence, ...]:
        return self.request.sequences[len(self.vectors) :]

    @property
    def waiting(self) -> tuple[InferSequence, ...]:
        return self.remaining[self.num_in_flight :]


Batch: TypeAlias = list[tuple[Pending, InferSequence]]


class InferQueue:
    """By rank, then first come, first served. The sequences of one request are computed in order, in as many steps as
    they need.

    Attributes:
        num_pending_tokens: of all sequences that are still to be computed.
    """

    def __init__(self, limits: EncoderLimits) -> None:
        self._limits = limits
        self._pending: dict[str, Pending] = {}
        self.num_pending_tokens = 0

    def __len__(self) -> int:
        """Requests that are not complete."""
        return len(self._pending)

    @property
    def head(self) -> Pending | None:
        """The request with the next sequence that is in no batch under way."""
        return next((pending for pending, _ in self._waiting()), None)

    @property
    def waiting_since_s(self) -> float:
        """When the request of the next such sequence came; infinity for none."""
        return math.inf if self.head is None else self.head.arrived_s

    def add(self, request: InferRequest, *, arrived_s: float, rank: Rank = ()) -> None:
        """AlreadyExistsError where a request of this id has not ended yet."""
        if request.request_id in self._pending:
            raise AlreadyExistsError(f"Request {request.request_id} is running already.", field="request_id")
        self._pending[request.request_id] = Pending(request, arrived_s, rank)
        if rank:
            self._pending = dict(sorted(self._pending.items(), key=lambda item: item[1].rank))
        self.num_pending_tokens += request.num_tokens

    def remove(self, request_id: str) -> bool:
        """Drops a request with what it has so far; False if it is unknown or has ended."""
        pending = self._pending.pop(request_id, None)
        if pending is None:
            return False
        self.num_pending_tokens -= sum(len(sequence.token_ids) for sequence in pending.remaining)
        return True

    def next_batch(self) -> Batch:
        """What a step may hold, in the order of the line; one sequence at least if there is any. Changes nothing."""
        batch: Batch = []
        num_tokens = 0
        for pending, sequence in self._waiting():
            num_tokens += len(sequence.token_ids)
            if batch and num_tokens > self._limits.max_num_batched_tokens:
                break
            batch.append((pending, sequence))
            if len(batch) == self._limits.max_num_seqs:
                break
        return batch

    def within_deadlines(self, batch: Batch, finish_s: Callable[[list[InferSequence]], float]) -> Batch:
        """As much of a batch, from its head on, as is done by its earliest deadline; nothing where the head misses.

        Args:
            finish_s: when sequences would be done as one batch.
        """
        sequences = [sequence for _, sequence in batch]
        size = batch_size([pending.deadline_s for pending, _ in batch], lambda size: finish_s(sequences[:size]))
        return batch[:size]

    def mark_started(self, batch: Batch) -> None:
        """Notes that a batch is under way."""
        for pending, _ in batch:
            pending.num_in_flight += 1

    def mark_finished(self, batch: Batch) -> None:
        """Takes back what `mark_started` noted, of the batch that departed first."""
        for pending, _ in batch:
            pending.num_in_flight -= 1

    def commit(self, batch: Batch, vectors: Sequence[bytes]) -> list[InferOutput]:
        """Notes the vectors of a batch; returns the requests that are complete with them. Those that were removed
        meanwhile are passed over."""
        outputs: list[InferOutput] = []
        for (pending, sequence), vector in zip(batch, vectors, strict=True):
            request_id = pending.request.request_id
            if self._pending.get(request_id) is not pending:
                continue
            pending.vectors.append(vector)
            self.num_pending_tokens -= len(sequence.token_ids)
            if not pending.remaining:
                del self._pending[request_id]
                outputs.append(InferOutput(request_id=request_id, vectors=tuple(pending.vectors)))
        return outputs

    def fail_all(self, error: str) -> list[InferOutput]:
        """Ends every request."""
        outputs = [InferOutput(request_id=request_id, error=error) for request_id in self._pending]
        self._pending.clear()
        self.num_pending_tokens = 0
        return outputs

    def _waiting(self) -> Iterator[tuple[Pending, InferSequence]]:
        for pending in self._pending.values():
            for sequence in pending.waiting:
                yield pending, sequence
