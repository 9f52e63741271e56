"""The output of the sampler while the device still computes it, and the samples that come of it."""

import torch
from torch import Tensor

from headway.engine.batch import Sample, ScheduledSequence
from headway.engine.sequence import Sequence
from headway.runner.broken_rows import NO_TOKEN, broken_sample
from headway.runner.constraints import GuideMasks, stop_token_ids
from headway.runner.host_copy import HostCopy
from headway.runner.logprobs import LogprobEntries
from headway.runner.row import Row
from headway.runner.scheduled_samples import take


class RowSamplerOutput:
    """The sampled token of each row, or a beam's candidates.

    Args:
        largest: the largest logit of each row; not finite where the row is broken, so that its token means nothing.
        scored: the rows whose log probabilities are asked for; `entries` has them.
        beams: for each row of a beam, the log probabilities of its continuations, [V].
        guides: the guides of sequences that have one.

    Attributes:
        token_ids: the sampled tokens, int64 [R], on the device.
    """

    def __init__(
        self,
        rows: list[Row],
        token_ids: Tensor,
        *,
        largest: Tensor,
        scored: list[int],
        entries: LogprobEntries | None,
        beams: dict[int, Tensor],
        eos_token_ids: tuple[int, ...],
        guides: GuideMasks | None,
    ) -> None:
        self.token_ids = token_ids
        self._rows = rows
        self._scored = scored
        self._entries = entries
        self._beams = beams
        self._eos_token_ids = eos_token_ids
        self._guides = guides
        self._copy = HostCopy(token_ids, largest)

    def sources(self, sequences: list[Sequence]) -> list[int]:
        """The rows of sequences that have one each."""
        row_of = {row.sequence: index for index, row in enumerate(self._rows)}
        return [row_of[sequence] for sequence in sequences]

    def finish(self) -> list[Sample]:
        """Waits for the device and returns the sample of each row."""
        token_ids, largest = self._copy.wait()
        samples = [Sample((token_id,)) for token_id in token_ids.tolist()]
        if self._entries is not None:
            for index, entry in zip(self._scored, self._entries.read(), strict=True):
                samples[index] = Sample(samples[index].token_ids, (entry,))
        for index, logprobs in self._beams.items():
            samples[index] = self._candidates(logprobs, self._rows[index])
        for index in (~largest.isfinite()).nonzero()[:, 0].tolist():
            samples[index] = broken_sample(largest[index].item())
        if self._guides is not None:
            _report_faults(samples, self._rows, guides=self._guides)
        return samples

    def _candidates(self, logprobs: Tensor, row: Row) -> Sample:
        """Enough continuations of a beam that, with all that may end it left out, its search is still full."""
        assert row.sampling.beam is not None, "the row is a beam's"
        num_stops = len(set(stop_token_ids(row, eos_token_ids=self._eos_token_ids)))
        count = max(2, 1 + num_stops) * row.sampling.beam.width
        best = logprobs.topk(min(count, len(logprobs)))
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return Sample((), candidates=tuple(pair for pair in pairs if pair[1] > -torch.inf))


class SamplerOutput:
    """The sampler's output for the scheduled sequences of a batch.

    Args:
        rows: the output of the sequences that are sampled from logits; None where none are.
        best: the tokens of the sequences that are not, int64 [N], `NO_TOKEN` for a broken row; None where all are.
    """

    def __init__(
        self, scheduled_sequences: list[ScheduledSequence], rows: RowSamplerOutput | None, *, best: Tensor | None = None
    ) -> None:
        self._scheduled_sequences = scheduled_sequences
        self._best = best
        self.rows = rows

    def finish(self) -> list[tuple[Sample, ...]]:
        """Waits for them; () where nothing is sampled."""
        drawn = iter(() if self.rows is None else self.rows.finish())
        if self._best is None:
            return [take(scheduled, drawn) for scheduled in self._scheduled_sequences]
        best = (broken_sample() if token == NO_TOKEN else Sample((token,)) for token in self._best.tolist())
        if self.rows is None:
            return [take(scheduled, best) for scheduled in self._scheduled_sequences]
        return [take(scheduled, best if scheduled.wants_best else drawn) for scheduled in self._scheduled_sequences]


def _report_faults(samples: list[Sample], rows: list[Row], *, guides: GuideMasks) -> None:
    """Replaces, in place, the samples of sequences that their guides cannot lead on."""
    for index, row in enumerate(rows):
        if row.sampling.guide is not None and (fault := guides.fault(row.sequence)):
            samples[index] = Sample((), error=fault)
