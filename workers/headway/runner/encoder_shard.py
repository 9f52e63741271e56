"""One rank's part of an encoder's network, which every rank of a group has."""

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.checkpoint.model_directory import Checkpoint
from headway.core.backend import EAGER
from headway.core.served_backend import ServedBackend, obstacle
from headway.core.shard import shard_of, shard_weight_bytes
from headway.models.encoder import EncoderBatch, SequenceRun
from headway.models.layout import Layout
from headway.models.loader import Progress, load_encoder
from headway.models.model import DTYPES
from headway.runner.parallel.group import RankGroup
from headway.runner.step_message import ModelInput

_SEED = 33


class EncoderShard:
    """Runs the steps that the group's leader announces, in step with the group's other ranks.

    Args:
        group: this rank's place; alone, the part is the whole.
        num_threads: CPU threads that compute, process-wide; None leaves torch's setting.
        progress: called while weights are loaded.
        backend: what is to run the layers, by name, or the fastest; empty for Headway's own kernels.

    Attributes:
        backend: what runs them; None where nothing was asked for.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        group: RankGroup,
        device: str = "cpu",
        num_threads: int | None = None,
        progress: Progress | None = None,
        backend: str = "",
    ) -> None:
        if num_threads is not None:
            torch.set_num_threads(num_threads)
        self.spec = checkpoint.spec
        self._shard = shard_of(self.spec, group.parallel, rank=group.rank)
        self._device = torch.device(device)
        self._previous, self._next = group.previous, group.next
        self._traffic = group.traffic
        layout = Layout(self._shard, group.tensor, group.head)
        self._encoder = load_encoder(checkpoint, layout=layout, device=self._device, progress=progress)
        self.backend = self._place(checkpoint, layout, backend, num_ranks=group.parallel.num_ranks) if backend else None

    @property
    def weight_bytes(self) -> int:
        """The size of this rank's weights."""
        return shard_weight_bytes(self.spec, self._shard)

    def expect(self, model_input: ModelInput) -> None:
        """Gets ready for what the stage before will send of a step."""
        if self._previous is not None:
            shape = (len(model_input.token_ids), self.spec.hidden_size)
            self._previous.expect(shape, dtype=DTYPES[self.spec.dtype], device=self._device)

    @torch.inference_mode()
    def compute(self, model_input: ModelInput) -> Tensor:
        """Takes the step's tokens through this stage's layers and sends the next stage what it goes on with; the last
        stage gives the vector of each sequence, float32 [B, width]. Sequences of equal length stand together."""
        self._traffic.open()
        entering = None if self._previous is None else self._previous.receive()
        out = self._encoder.forward(self._batch_of(model_input), entering=entering)
        if self._next is not None:
            self._next.send(out)
        return out

    def _place(self, checkpoint: Checkpoint, layout: Layout, wanted: str, *, num_ranks: int) -> ServedBackend:
        """Has a backend run the layers, if one can."""
        reason = obstacle(self.spec, num_ranks=num_ranks, device=self._device.type)
        if wanted == EAGER or reason:
            return ServedBackend(backend=EAGER, reason=reason)
        from headway.runner.encoder_backend import EncoderPlacing  # a worker without backends needs none of it

        placing = EncoderPlacing(
            self._encoder,
            load_encoder(checkpoint, layout=layout, device=self._device, packs=False),
            make_batch=self._synthetic,
            max_length=self.spec.max_position,
            num_threads=torch.get_num_threads(),
        )
        return placing.place(wanted)

    def _synthetic(self, lengths: Sequence[int]) -> EncoderBatch:
        """Sequences of these lengths, ascending, the same every time."""
        num_tokens = sum(lengths)
        generator = np.random.default_rng(_SEED)
        token_ids = generator.integers(self.spec.vocab_size, size=num_tokens)
        return self._batch(token_ids, np.array(lengths), types=np.zeros(num_tokens, np.int64))

    def _batch_of(self, model_input: ModelInput) -> EncoderBatch:
        num_tokens = len(model_input.token_ids)
        types = model_input.token_type_ids if len(model_input.token_type_ids) else np.zeros(num_tokens, np.int32)
        return self._batch(
            model_input.token_ids.astype(np.int64), model_input.counts.astype(np.int64), types=types.astype(np.int64)
        )

    def _batch(
        self, token_ids: NDArray[np.int64], lengths: NDArray[np.int64], *, types: NDArray[np.int64]
    ) -> EncoderBatch:
        first_rows = np.cumsum(lengths) - lengths
        return EncoderBatch(
            token_ids=self._tensor(token_ids),
            positions=self._tensor(np.arange(len(token_ids)) - np.repeat(first_rows, lengths)),
            token_type_ids=self._tensor(types),
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
