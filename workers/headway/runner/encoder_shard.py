"""One rank's part of an encoder's network, which every rank of a group has."""

import itertools

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headway.core.shard import shard_of, shard_weight_bytes
from headway.models.encoder import EncoderBatch, SequenceRun
from headway.models.layout import Layout
from headway.models.loader import Progress, load_encoder
from headway.models.model import DTYPES
from headway.runner.parallel.group import RankGroup
from headway.runner.step_message import ModelInput
from headway.store.checkpoint import Checkpoint


class EncoderShard:
    """Runs the steps that the group's leader announces, in step with the group's other ranks.

    Args:
        group: this rank's place; alone, the part is the whole.
        num_threads: CPU threads that compute, process-wide; None leaves torch's setting.
        progress: called while weights are loaded.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        group: RankGroup,
        device: str = "cpu",
        num_threads: int | None = None,
        progress: Progress | None = None,
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
        out = self._encoder.forward(self._batch(model_input), entering=entering)
        if self._next is not None:
            self._next.send(out)
        return out

    def _batch(self, model_input: ModelInput) -> EncoderBatch:
        lengths = model_input.counts.astype(np.int64)
        first_rows = np.cumsum(lengths) - lengths
        num_tokens = len(model_input.token_ids)
        types = model_input.token_type_ids if len(model_input.token_type_ids) else np.zeros(num_tokens, np.int32)
        return EncoderBatch(
            token_ids=self._tensor(model_input.token_ids.astype(np.int64)),
            positions=self._tensor(np.arange(num_tokens) - np.repeat(first_rows, lengths)),
            token_type_ids=self._tensor(types.astype(np.int64)),
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
