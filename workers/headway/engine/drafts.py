"""Attaches guesses of the next tokens to decodes, as far as a step has room to spare (speculative decoding)."""

from headway.engine.batch import ScheduledSequence, StepBatch
from headway.engine.block_manager import BlockManager
from headway.engine.config import EngineConfig
from headway.engine.sequence import Sequence
from headway.engine.speculation import NgramIndex


class Drafter:
    """Gives drafts what is left over: tokens of the batch, and blocks that nobody needs for the next step."""

    def __init__(self, config: EngineConfig, *, blocks: BlockManager) -> None:
        self._config = config
        self._blocks = blocks

    def attach(self, batch: StepBatch, *, max_sequence_len: int) -> None:
        """Adds drafts to a batch that is otherwise complete, oldest sequences first."""
        for scheduled in batch.sequences:
            budget = self._config.max_num_batched_tokens - batch.num_tokens
            if budget == 0:
                return
            if _can_have_drafts(scheduled):
                limit = min(budget, self._num_useful_tokens(scheduled.sequence, max_sequence_len))
                draft_token_ids = self._propose(scheduled.sequence, limit) if limit > 0 else ()
                if draft_token_ids and self._has_room(scheduled.sequence, batch, len(draft_token_ids)):
                    scheduled.draft_token_ids = draft_token_ids
                    scheduled.num_new_tokens += len(draft_token_ids)
                    batch.num_tokens += len(draft_token_ids)

    def _num_useful_tokens(self, sequence: Sequence, max_sequence_len: int) -> int:
        """Drafts that can be accepted; the token that is sampled behind them is a further one."""
        num_left = min(sequence.sampling.max_tokens - sequence.num_output_tokens, max_sequence_len - len(sequence))
        return min(self._config.num_draft_tokens, num_left - 1)

    def _propose(self, sequence: Sequence, num_tokens: int) -> tuple[int, ...]:
        if sequence.ngrams is None:
            sequence.ngrams = NgramIndex(max_ngram=self._config.draft_ngram)
        sequence.ngrams.extend(sequence.token_ids[len(sequence.ngrams) :])
        return sequence.ngrams.propose(num_tokens)

    def _has_room(self, sequence: Sequence, batch: StepBatch, num_drafts: int) -> bool:
        """Grows the table if that leaves every sequence of the batch, and of its like, the block it may need next."""
        num_tokens = len(sequence) + num_drafts
        num_blocks = self._blocks.num_blocks_to_grow(sequence, num_tokens=num_tokens)
        num_reserved = max(len(batch.sequences) * self._config.num_micro_batches, self._config.num_watermark_blocks)
        if num_blocks and num_blocks + num_reserved > self._blocks.num_available_blocks:
            return False
        return self._blocks.grow(sequence, num_tokens=num_tokens)


def _can_have_drafts(scheduled: ScheduledSequence) -> bool:
    """Decodes can, but those of beams: which of their tokens live on is not known before all are computed."""
    return (
        scheduled.num_new_tokens == 1
        and scheduled.samples
        and not scheduled.followers
        and scheduled.sequence.sampling.beam is None
    )
