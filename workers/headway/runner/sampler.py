"""Turns logits into what each sequence gets: sampled tokens, verified drafts, or a beam's candidates.

It starts the work of a device; a `SamplerOutput` waits for what came of it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from headway.engine.batch import ScheduledSequence
from headway.kernels import KernelSet, kernel_set, to_device
from headway.models.product import row_argmax
from headway.runner.constraints import GuideMasks, forbid_bad_words, forbid_early_stops, forbid_unguided
from headway.runner.draw import draw_tokens, token_weights, uniforms
from headway.runner.gpu_draw import choose_tokens
from headway.runner.logprobs import LogprobEntries
from headway.runner.penalties import apply_bias, apply_penalties
from headway.runner.row import Row, rows_of
from headway.runner.sampler_output import RowSamplerOutput, SamplerOutput
from headway.runner.truncation import truncate


@dataclass(frozen=True, slots=True)
class Sampler:
    """The sampler of one model.

    Attributes:
        eos_token_ids: the model's end-of-sequence tokens.
        guides: for sequences that have one; None where the model's tokenizer is not at hand.
    """

    eos_token_ids: tuple[int, ...] = ()
    guides: GuideMasks | None = None

    def start(
        self, logits: Tensor | None, scheduled_sequences: list[ScheduledSequence], *, best: Tensor | None = None
    ) -> SamplerOutput:
        """Starts to draw what each scheduled sequence, and each of its followers, gets; nothing where nothing is
        sampled.

        Args:
            logits: float32 [S, V], behind the last known token and each draft of every scheduled sequence that samples;
                changed in place. None where there are no such scheduled sequences.
            best: int64 [N], the tokens of the scheduled sequences that want the best ones only, if those have no
                logits.
        """
        if logits is None:
            return SamplerOutput(scheduled_sequences, None, best=best)
        drawn = (
            scheduled_sequences
            if best is None
            else [scheduled for scheduled in scheduled_sequences if not scheduled.wants_best]
        )
        rows = [row for scheduled in drawn for row in rows_of(scheduled)]
        return SamplerOutput(scheduled_sequences, self.start_rows(_spread(logits, drawn), rows), best=best)

    @torch.inference_mode()
    def start_rows(self, logits: Tensor, rows: list[Row]) -> RowSamplerOutput:
        """Starts to draw a token for each row; beams have candidates.

        Args:
            logits: float32 [R, V]; changed in place.
        """
        scored = [index for index, row in enumerate(rows) if row.sampling.num_logprobs is not None]
        raw, scored_rows = logits, None
        if scored:
            scored_rows = to_device(torch.tensor(scored), logits.device)
            raw = logits[scored_rows]
        beams = [index for index, row in enumerate(rows) if row.sampling.beam is not None]
        if beams:
            # As in transformers, a beam's log probabilities are taken first: what is taken from one token by a
            # penalty or a constraint is not given to the others.
            logits[beams] = logits[beams].log_softmax(1)
        self._process(logits, rows)
        token_ids, largest = _choose(logits, rows)
        entries = None
        if scored_rows is not None:
            num_top = [rows[index].sampling.num_logprobs or 0 for index in scored]
            entries = LogprobEntries(raw, token_ids[scored_rows], num_top=num_top)
        return RowSamplerOutput(
            rows,
            token_ids,
            largest=largest,
            scored=scored,
            entries=entries,
            beams={index: logits[index] for index in beams},
            eos_token_ids=self.eos_token_ids,
            guides=self.guides,
        )

    def _process(self, logits: Tensor, rows: list[Row]) -> None:
        """Everything that changes logits, in transformers' order; in place."""
        apply_bias(logits, rows)
        apply_penalties(logits, rows)
        forbid_bad_words(logits, rows, eos_token_ids=self.eos_token_ids)
        forbid_early_stops(logits, rows, eos_token_ids=self.eos_token_ids)
        if self.guides is not None:
            forbid_unguided(logits, rows, guides=self.guides)


def _spread(logits: Tensor, scheduled_sequences: list[ScheduledSequence]) -> Tensor:
    """One row of logits for each row of the batch: followers sample from their leader's."""
    if not any(scheduled.followers for scheduled in scheduled_sequences):
        return logits
    num_uses: list[int] = []
    for scheduled in scheduled_sequences:
        if scheduled.samples:
            num_uses += [1] * len(scheduled.draft_token_ids) + [1 + len(scheduled.followers)]
    owners = torch.arange(len(num_uses)).repeat_interleave(torch.tensor(num_uses))
    return logits.index_select(0, to_device(owners, logits.device))


def _choose(logits: Tensor, rows: list[Row]) -> tuple[Tensor, Tensor]:
    """The best token of greedy rows, a drawn one of the others, int64 [R]; and the largest logits, float32 [R]."""
    if kernel_set(logits.device) is KernelSet.CUDA:
        return choose_tokens(logits, rows), logits.amax(1)
    drawn = [index for index, row in enumerate(rows) if not row.sampling.is_greedy and row.sampling.beam is None]
    if len(drawn) == len(rows):
        largest = logits.amax(1)
        return _draw(logits, rows, largest), largest
    token_ids = row_argmax(logits)
    largest = logits.gather(1, token_ids[:, None])[:, 0]
    if drawn:
        token_ids[drawn] = _draw(logits[drawn], [rows[index] for index in drawn], largest[drawn])
    return token_ids, largest


def _draw(logits: Tensor, rows: list[Row], largest: Tensor) -> Tensor:
    params = [row.sampling for row in rows]
    weights = token_weights(logits, logits.new_tensor([p.temperature for p in params]), best=largest)
    truncate(weights, params, vocab_size=logits.shape[1])
    uniform = uniforms([p.seed for p in params], [row.num_output_tokens for row in rows])
    return draw_tokens(weights, torch.from_numpy(uniform).to(logits.device))
