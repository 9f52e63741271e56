"""A batch under way: what the engine must know about it until its results are there.

A pipeline of several stages is full while as many batches are under way. They are computed in the order in which they
were started, on every rank, so blocks may change hands at once: who gets them writes after everybody who was started
before has read.
"""

from dataclasses import dataclass, field

from headway.engine.batch import ScheduledSequence, StepBatch
from headway.engine.group import SequenceGroup


@dataclass(slots=True)
class MicroBatch:
    """A batch, whose it is, and what it adds to the figures.

    Attributes:
        groups: that have shares in it.
        chunks: the shares that sample nothing: what follows them can be computed behind them, without their results.
        num_prefill_tokens, num_decode_tokens: drafts are counted apart.
        started_s: when its step began.
    """

    batch: StepBatch = field(default_factory=lambda: StepBatch(sequences=[], num_tokens=0))
    groups: list[SequenceGroup] = field(default_factory=list)
    chunks: list[ScheduledSequence] = field(default_factory=list)
    num_prefill_tokens: int = 0
    num_decode_tokens: int = 0
    started_s: float = 0.0

    def depart(self) -> None:
        """Notes that the batch is under way: for all that is started behind it, its chunks are computed."""
        for group in self.groups:
            group.num_in_flight += 1
        for chunk in self.chunks:
            chunk.sequence.num_computed_tokens += chunk.num_new_tokens

    def arrive(self) -> None:
        """Takes back what `depart` noted: from here on the batch's results count, if there are any."""
        for group in self.groups:
            group.num_in_flight -= 1
        for chunk in self.chunks:
            chunk.sequence.num_computed_tokens -= chunk.num_new_tokens
