"""Executes the one-pass engine's batches on an encoder."""

import itertools
import time
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.core.errors import InvalidArgumentError
from headway.core.infer import InferSequence
from headway.models.encoder import EncoderBatch, SequenceRun
from headway.models.loader import Progress, load_encoder
from headway.store.checkpoint import Checkpoint


class EncoderRunner:
    """A loaded encoder; implements `headway.encoder.engine.EncoderRunner`.

    Args:
        num_threads: CPU threads that compute, process-wide; None leaves torch's setting.
        progress: called while weights are loaded.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        device: str = "cpu",
        num_threads: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        if num_threads is not None:
            torch.set_num_threads(num_threads)
        self.spec = checkpoint.spec
        self._device = torch.device(device)
        self._encoder = load_encoder(checkpoint, device=self._device, progress=progress)

    @property
    def weight_bytes(self) -> int:
        return self.spec.weight_bytes

    @torch.inference_mode()
    def execute(self, sequences: Sequence[InferSequence]) -> list[bytes]:
        """The vector of each sequence, float32, little-endian."""
        order = sorted(range(len(sequences)), key=lambda index: len(sequences[index].token_ids))
        out = self._encoder.forward(self._batch([sequences[index] for index in order])).cpu()
        rows = np.ascontiguousarray(out.numpy(), dtype="<f4")
        vectors = [b""] * len(sequences)
        for index, row in zip(order, rows, strict=True):
            vectors[index] = row.tobytes()
        return vectors

    def measure(self, *, prefill_tokens: int, num_decodes: int, context_tokens: int) -> float:
        """Seconds that a step with one sequence of `prefill_tokens` takes, once the same step has run before.

        Raises:
            InvalidArgumentError: decodes or a context are asked for, which an encoder has not.
        """
        if num_decodes or context_tokens or not 1 <= prefill_tokens <= self.spec.max_position:
            raise InvalidArgumentError(
                f"A step of an encoder is one sequence of 1 to {self.spec.max_position} tokens, without context.",
                field="prefill_tokens",
            )
        token_ids = tuple(index % self.spec.vocab_size for index in range(prefill_tokens))
        self.execute([InferSequence(token_ids=token_ids)])
        started_s = time.perf_counter()
        self.execute([InferSequence(token_ids=token_ids)])
        return time.perf_counter() - started_s

    def _batch(self, sequences: Sequence[InferSequence]) -> EncoderBatch:
        """`sequences` by length."""
        lengths = np.fromiter((len(sequence.token_ids) for sequence in sequences), np.int64, len(sequences))
        first_rows = np.cumsum(lengths) - lengths
        num_tokens = int(lengths.sum())
        types = (sequence.token_type_ids or itertools.repeat(0, len(sequence.token_ids)) for sequence in sequences)
        token_ids = (sequence.token_ids for sequence in sequences)
        return EncoderBatch(
            token_ids=self._tensor(np.fromiter(itertools.chain.from_iterable(token_ids), np.int64, num_tokens)),
            positions=self._tensor(np.arange(num_tokens) - np.repeat(first_rows, lengths)),
            token_type_ids=self._tensor(np.fromiter(itertools.chain.from_iterable(types), np.int64, num_tokens)),
            first_rows=self._tensor(first_rows),
            lengths=self._tensor(lengths),
            runs=tuple(_runs(lengths)),
        )

    def _tensor(self, array: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(array).to(self._device)


def _runs(lengths: NDArray[np.int64]) -> list[SequenceRun]:
    runs: list[SequenceRun] = []
    first_token = 0
    for length, equals in itertools.groupby(lengths.tolist()):
        runs.append(SequenceRun(first_token, len(list(equals)), length))
        first_token = runs[-1].end_token
    return runs
