"""Rows of logits: which sequence, and which place in it, each one is for."""

from dataclasses import dataclass

from headway.core.request import SamplingParams
from headway.engine.batch import ScheduledSequence
from headway.engine.sequence import Sequence


@dataclass(slots=True)
class Row:
    """The next token of `sequence`, if `draft_token_ids` come right after its own tokens.

    Attributes:
        num_pending_tokens: that come after its own too, and are known on the device only.
    """

    sequence: Sequence
    draft_token_ids: tuple[int, ...] = ()
    num_pending_tokens: int = 0

    @property
    def sampling(self) -> SamplingParams:
        return self.sequence.sampling

    @property
    def token_ids(self) -> list[int]:
        """Everything before the token to sample; nothing may be pending."""
        return [*self.sequence.token_ids, *self.draft_token_ids]

    @property
    def output_token_ids(self) -> list[int]:
        return [*self.sequence.output_token_ids, *self.draft_token_ids]

    @property
    def num_output_tokens(self) -> int:
        return self.sequence.num_output_tokens + len(self.draft_token_ids) + self.num_pending_tokens


def rows_of(scheduled: ScheduledSequence) -> list[Row]:
    """Returns the rows that the scheduled sequence samples: one behind each of its drafts, or one for each follower;
    none if it is a prefill chunk.
    """
    if not scheduled.samples:
        return []
    drafts = scheduled.draft_token_ids
    if drafts:
        return [Row(scheduled.sequence, drafts[:count]) for count in range(len(drafts) + 1)]
    sequence = scheduled.sequence
    row = Row(sequence, (), scheduled.start + scheduled.num_new_tokens - len(sequence.token_ids))
    return [row, *map(Row, scheduled.followers)] if scheduled.followers else [row]
