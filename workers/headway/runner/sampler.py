"""Turns logits into what each sequence gets: sampled tokens, verified drafts, or a beam's candidates."""

from dataclasses import dataclass

import torch
from torch import Tensor

from headway.core.request import TokenLogprobs
from headway.engine.batch import Sample, ScheduledSequence
from headway.kernels import KernelSet, kernel_set
from headway.runner.constraints import (
    GuideMasks,
    forbid_bad_words,
    forbid_early_stops,
    forbid_unguided,
    stop_token_ids,
)
from headway.runner.draw import draw_tokens, token_weights, uniforms
from headway.runner.gpu_draw import choose_tokens
from headway.runner.logprobs import token_logprobs
from headway.runner.penalties import apply_bias, apply_penalties
from headway.runner.row import Row, rows_of
from headway.runner.share_samples import take
from headway.runner.truncation import truncate


@dataclass(frozen=True, slots=True)
class Sampler:
    """Samples for one model.

    Attributes:
        eos_token_ids: the model's own.
        guides: for sequences that have one; None where the model's tokenizer is not at hand.
    """

    eos_token_ids: tuple[int, ...] = ()
    guides: GuideMasks | None = None

    def sample(self, logits: Tensor, shares: list[ScheduledSequence]) -> list[tuple[Sample, ...]]:
        """What each share's sequence, and each of its followers, gets; () where nothing is sampled.

        Args:
            logits: float32 [S, V], behind the last known token and each draft of every share that samples; changed
                in place.
        """
        rows = [row for share in shares for row in rows_of(share)]
        samples = iter(self.sample_rows(_spread(logits, shares), rows))
        return [take(share, samples) for share in shares]

    def sample_rows(self, logits: Tensor, rows: list[Row]) -> list[Sample]:
        """A token, or a beam's candidates, for each row.

        Args:
            logits: float32 [R, V]; changed in place.
        """
        scored = [index for index, row in enumerate(rows) if row.sampling.num_logprobs is not None]
        raw = logits[scored] if scored else logits
        beams = [index for index, row in enumerate(rows) if row.sampling.beam is not None]
        if beams:
            # As in transformers, a beam's log probabilities are taken first: what is taken from one token by a
            # penalty or a constraint is not given to the others.
            logits[beams] = logits[beams].log_softmax(1)
        self._process(logits, rows)
        token_ids = _choose(logits, rows)
        samples = [Sample((token_id,)) for token_id in token_ids.tolist()]
        if scored:
            for index, entry in zip(scored, _score(raw, token_ids, rows, scored), strict=True):
                samples[index] = Sample(samples[index].token_ids, (entry,))
        for index in beams:
            samples[index] = self._candidates(logits[index], rows[index])
        if self.guides is not None:
            _report_faults(samples, rows, guides=self.guides)
        return samples

    def _process(self, logits: Tensor, rows: list[Row]) -> None:
        """Everything that changes logits, in transformers' order; in place."""
        apply_bias(logits, rows)
        apply_penalties(logits, rows)
        forbid_bad_words(logits, rows, eos_token_ids=self.eos_token_ids)
        forbid_early_stops(logits, rows, eos_token_ids=self.eos_token_ids)
        if self.guides is not None:
            forbid_unguided(logits, rows, guides=self.guides)

    def _candidates(self, logprobs: Tensor, row: Row) -> Sample:
        """Enough continuations of a beam that, with all that may end it left out, its search is still full."""
        assert row.sampling.beam is not None, "the row is a beam's"
        num_stops = len(set(stop_token_ids(row, eos_token_ids=self.eos_token_ids)))
        count = max(2, 1 + num_stops) * row.sampling.beam.width
        best = logprobs.topk(min(count, len(logprobs)))
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return Sample((), candidates=tuple(pair for pair in pairs if pair[1] > -torch.inf))


def _spread(logits: Tensor, shares: list[ScheduledSequence]) -> Tensor:
    """One row of logits for each row of the batch: followers sample from their leader's."""
    if not any(share.followers for share in shares):
        return logits
    num_uses: list[int] = []
    for share in shares:
        if share.samples:
            num_uses += [1] * len(share.draft_token_ids) + [1 + len(share.followers)]
    return logits.repeat_interleave(torch.tensor(num_uses, device=logits.device), dim=0)


def _report_faults(samples: list[Sample], rows: list[Row], *, guides: GuideMasks) -> None:
    """Replaces, in place, the samples of sequences that their guides cannot lead on."""
    for index, row in enumerate(rows):
        if row.sampling.guide is not None and (fault := guides.fault(row.sequence)):
            samples[index] = Sample((), error=fault)


def _score(raw: Tensor, token_ids: Tensor, rows: list[Row], scored: list[int]) -> list[TokenLogprobs]:
    num_top = [rows[index].sampling.num_logprobs or 0 for index in scored]
    return token_logprobs(raw, token_ids[scored], num_top=num_top)


def _choose(logits: Tensor, rows: list[Row]) -> Tensor:
    """The best token of greedy rows, a drawn one of the others, int64 [R]."""
    if kernel_set(logits.device) is KernelSet.CUDA:
        return choose_tokens(logits, rows)
    drawn = [index for index, row in enumerate(rows) if row.sampling.temperature > 0 and row.sampling.beam is None]
    if len(drawn) == len(rows):
        return _draw(logits, rows)
    token_ids = argmax(logits)
    if drawn:
        token_ids[drawn] = _draw(logits[drawn], [rows[index] for index in drawn])
    return token_ids


def _draw(logits: Tensor, rows: list[Row]) -> Tensor:
    params = [row.sampling for row in rows]
    weights = token_weights(logits, logits.new_tensor([p.temperature for p in params]))
    truncate(weights, params, vocab_size=logits.shape[1])
    uniform = uniforms([p.seed for p in params], [row.num_output_tokens for row in rows])
    return draw_tokens(weights, torch.from_numpy(uniform).to(logits.device))


def argmax(logits: Tensor) -> Tensor:
    """Row-wise argmax on the CPU; NumPy's is vectorised and five times as fast as PyTorch's."""
    return torch.from_numpy(logits.numpy().argmax(axis=1))
