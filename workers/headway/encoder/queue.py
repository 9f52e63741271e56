"""Requests in the order they came, and which of their sequences the next step computes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from headway.core.errors import AlreadyExistsError
from headway.core.infer import InferOutput, InferRequest, InferSequence
from headway.encoder.limits import EncoderLimits


@dataclass(slots=True, eq=False)
class Pending:
    """A request, and the vectors of its sequences so far."""

    request: InferRequest
    vectors: list[bytes] = field(default_factory=list)

    @property
    def remaining(self) -> tuple[InferSequence, ...]:
        return self.request.sequences[len(self.vectors) :]


Batch: TypeAlias = list[tuple[Pending, InferSequence]]


class InferQueue:
    """First come, first served. The sequences of one request are computed in order, in as many steps as they need.

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

    def add(self, request: InferRequest) -> None:
        """AlreadyExistsError where a request of this id has not ended yet."""
        if request.request_id in self._pending:
            raise AlreadyExistsError(f"Request {request.request_id} is running already.", field="request_id")
        self._pending[request.request_id] = Pending(request)
        self.num_pending_tokens += request.num_tokens

    def remove(self, request_id: str) -> bool:
        """Drops a request with what it has so far; False if it is unknown or has ended."""
        pending = self._pending.pop(request_id, None)
        if pending is None:
            return False
        self.num_pending_tokens -= sum(len(sequence.token_ids) for sequence in pending.remaining)
        return True

    def next_batch(self) -> Batch:
        """What a step may hold, the oldest first; one sequence at least if there is any. Changes nothing."""
        batch: Batch = []
        num_tokens = 0
        for pending, sequence in self._remaining():
            num_tokens += len(sequence.token_ids)
            if batch and num_tokens > self._limits.max_num_batched_tokens:
                break
            batch.append((pending, sequence))
            if len(batch) == self._limits.max_num_seqs:
                break
        return batch

    def commit(self, batch: Batch, vectors: Sequence[bytes]) -> list[InferOutput]:
        """Notes the vectors of a batch; returns the requests that are complete with them."""
        outputs: list[InferOutput] = []
        for (pending, sequence), vector in zip(batch, vectors, strict=True):
            pending.vectors.append(vector)
            self.num_pending_tokens -= len(sequence.token_ids)
            if not pending.remaining:
                request_id = pending.request.request_id
                del self._pending[request_id]
                outputs.append(InferOutput(request_id=request_id, vectors=tuple(pending.vectors)))
        return outputs

    def fail_all(self, error: str) -> list[InferOutput]:
        """Ends every request."""
        outputs = [InferOutput(request_id=request_id, error=error) for request_id in self._pending]
        self._pending.clear()
        self.num_pending_tokens = 0
        return outputs

    def _remaining(self) -> Iterator[tuple[Pending, InferSequence]]:
        for pending in self._pending.values():
            for sequence in pending.remaining:
                yield pending, sequence
