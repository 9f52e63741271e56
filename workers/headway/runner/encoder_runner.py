"""Executes the one-pass engine's batches on an encoder, and on the rest of its group if it has one."""

import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from headway.checkpoint.model_directory import Checkpoint
from headway.core.errors import InvalidArgumentError
from headway.core.infer import InferSequence
from headway.core.served_backend import ServedBackend
from headway.encoder.in_flight_batch import InFlightBatch
from headway.models.loader import Progress
from headway.runner.completion_thread import CompletionThread
from headway.runner.encoder_shard import EncoderShard
from headway.runner.parallel.collective_counters import CollectiveCounters
from headway.runner.parallel.group import RankGroup
from headway.runner.parallel.leader import Leader, Step
from headway.runner.step_message import ModelInput, StepKind, StepMessage

_NEWEST = 0.2
"""What a step counts for, of how long a token is believed to take."""


class EncoderRunner:
    """A loaded encoder; implements `headway.worker.runners.OnePassRunner`.

    In a pipeline as many batches are under way as there are stages; else a batch is computed when it is finished.

    Args:
        group: which this process leads; None alone.
        leader: of the group, where it has several models; it has opened this one. None for its only one.
        number: of the model in the group.
        num_threads: CPU threads that compute, process-wide; None leaves torch's setting.
        progress: called while weights are loaded.
        backend: what is to run the layers; see `EncoderShard`.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        group: RankGroup | None = None,
        leader: Leader | None = None,
        number: int = 0,
        device: str = "cpu",
        num_threads: int | None = None,
        progress: Progress | None = None,
        backend: str = "",
    ) -> None:
        self.spec = checkpoint.spec
        self._token_s = 0.0  # of the latest steps; unknown before the first
        self._group = group or RankGroup.single()
        self._shard = EncoderShard(
            checkpoint,
            group=self._group,
            device=device,
            num_threads=num_threads,
            progress=progress,
            backend=backend,
        )
        if leader is None:
            leader = Leader(self._group)
            leader.open(number)
        self._leader = leader
        self._number = number
        self._since_s = math.inf
        self._completion_thread = (
            CompletionThread(room=self._group.parallel.pp) if self._group.parallel.pp > 1 else None
        )

    @property
    def weight_bytes(self) -> int:
        """The size of this process's weights."""
        return self._shard.weight_bytes

    @property
    def backend(self) -> ServedBackend | None:
        """What runs the layers; None where nothing was asked for."""
        return self._shard.backend

    @property
    def traffic(self) -> CollectiveCounters:
        return self._group.traffic

    @property
    def free_s(self) -> float:
        """When another batch can be taken: at once, or in a pipeline not before one of the batches in flight, of
        whichever model, has completed; there are at most as many as stages. What has completed is reported before there
        is room for more.
        """
        if self._completion_thread is None:
            return -math.inf
        return -math.inf if self._completion_thread.has_room and self._leader.has_room else math.inf

    def notify(self, on_change: Callable[[], None]) -> None:
        if self._completion_thread is not None:
            self._completion_thread.on_completed = on_change
            self._leader.watch(self._number, on_change)

    def wait(self, since_s: float) -> None:
        self._since_s = since_s

    def duration_s(self, sequences: Sequence[InferSequence]) -> float:
        """Predicts the seconds that a batch takes, by the time per token of the latest batches."""
        return self._token_s * sum(len(sequence.token_ids) for sequence in sequences)

    def predict(self, sequences: Sequence[InferSequence], *, ready_s: float) -> float:
        """Predicts when a batch would be done. Its time is an estimate, so a sequence alone misses only a deadline that
        has passed.
        """
        started_s = max(ready_s, time.perf_counter())
        return started_s if len(sequences) == 1 else started_s + self.duration_s(sequences)

    def start(self, sequences: Sequence[InferSequence], *, ready_s: float) -> InFlightBatch:  # noqa: ARG002 - the oldest counts
        """Starts a batch; see `headway.encoder.in_flight_batch.EncoderRunner.start`."""
        order = sorted(range(len(sequences)), key=lambda index: len(sequences[index].token_ids))
        finish = partial(self._finish, order, self._begin([sequences[index] for index in order]))
        timed = partial(self._timed, finish, num_tokens=sum(len(sequence.token_ids) for sequence in sequences))
        return InFlightBatch(timed) if self._completion_thread is None else self._completion_thread.take(timed)

    def execute(self, sequences: Sequence[InferSequence]) -> list[bytes]:
        """The vector of each sequence, float32, little-endian."""
        return self.start(sequences, ready_s=-math.inf).finish()

    def measure(self, *, prefill_tokens: int, num_decodes: int, context_tokens: int) -> float:
        """Seconds that a step with one sequence of `prefill_tokens` takes, once the same step has run before. In a
        pipeline they are those of one among others: all stages have something to do.

        Raises:
            InvalidArgumentError: decodes or a context are asked for, which an encoder has not.
        """
        if num_decodes or context_tokens or not 1 <= prefill_tokens <= self.spec.max_position:
            raise InvalidArgumentError(
                f"A step of an encoder is one sequence of 1 to {self.spec.max_position} tokens, without context.",
                field="prefill_tokens",
            )
        sequence = InferSequence(token_ids=tuple(index % self.spec.vocab_size for index in range(prefill_tokens)))
        num_stages = self._group.parallel.pp
        in_flight_batches = deque(self.start([sequence], ready_s=-math.inf) for _ in range(num_stages))
        in_flight_batches.popleft().finish()
        started_s = time.perf_counter()
        for _ in range(num_stages):
            in_flight_batches.append(self.start([sequence], ready_s=-math.inf))
            in_flight_batches.popleft().finish()
        duration_s = time.perf_counter() - started_s
        while in_flight_batches:
            in_flight_batches.popleft().finish()
        return duration_s

    def close(self) -> None:
        """Waits for what is under way, and has the group's other ranks drop the model, or with its last one go."""
        if self._completion_thread is not None:
            self._completion_thread.close()
        self._leader.close(self._number)

    def _timed(self, finish: Callable[[], list[bytes]], *, num_tokens: int) -> list[bytes]:
        """Notes what a token has taken."""
        started_s = time.perf_counter()
        vectors = finish()
        token_s = (time.perf_counter() - started_s) / num_tokens
        self._token_s += _NEWEST * (token_s - self._token_s) if self._token_s else token_s
        return vectors

    def _begin(self, sequences: Sequence[InferSequence]) -> Step[Tensor]:
        model_input = _flatten(sequences)
        return self._leader.start(
            StepMessage(StepKind.STEP, model_input=model_input, model=self._number),
            compute=lambda: self._compute(model_input),
            expect=lambda: self._shard.expect(model_input),
            since_s=self._since_s,
        )

    @torch.inference_mode()
    def _compute(self, model_input: ModelInput) -> Tensor:
        return self._shard.compute(model_input).cpu()

    def _finish(self, order: Sequence[int], step: Step[Tensor]) -> list[bytes]:
        rows = np.ascontiguousarray(self._leader.finish(step).numpy(), dtype="<f4")
        vectors = [b""] * len(order)
        for index, row in zip(order, rows, strict=True):
            vectors[index] = row.tobytes()
        return vectors


def _flatten(sequences: Sequence[InferSequence]) -> ModelInput:
    """Concatenates sequences, sorted by length, into one model input."""
    nothing = np.zeros(0, np.int32)
    lengths = np.fromiter((len(sequence.token_ids) for sequence in sequences), np.int32, len(sequences))
    types: list[Sequence[int]] = []
    if any(sequence.token_type_ids for sequence in sequences):
        types = [sequence.token_type_ids or (0,) * len(sequence.token_ids) for sequence in sequences]
    return ModelInput(
        token_ids=np.fromiter(itertools.chain.from_iterable(s.token_ids for s in sequences), np.int32),
        first_positions=np.zeros_like(lengths),
        counts=lengths,
        blocks=nothing,
        sampled_rows=nothing,
        scored_rows=nothing,
        token_type_ids=np.fromiter(itertools.chain.from_iterable(types), np.int32),
    )
