"""A batch under way: what the engine must know about it until its results are there.

A pipeline of several stages is full while as many batches are under way, and a device that the host does not wait for
is never idle while there are two. They are computed in the order in which they were started, on every rank, so blocks
may change hands at once: who gets them writes after everybody who was started before has read and written.
"""

from dataclasses import dataclass, field

from headway.engine.batch import ScheduledSequence, StepBatch
from headway.engine.group import SequenceGroup


@dataclass(slots=True)
class MicroBatch:
    """A batch, whose it is, and what it adds to the figures.

    Attributes:
        groups: that have scheduled sequences in it.
        done_ahead: scheduled sequences behind which what follows can be started, without their results: those that
            sample nothing; where an engine runs ahead, all.
        num_prefill_tokens, num_decode_tokens: drafts are counted apart.
        started_s: when its step began.
        is_trial: it is of suspects, to find out who makes steps fail.
        is_void: its results are not wanted, because a batch before it has failed.
    """

    batch: StepBatch = field(default_factory=lambda: StepBatch(sequences=[], num_tokens=0))
    groups: list[SequenceGroup] = field(default_factory=list)
    done_ahead: list[ScheduledSequence] = field(default_factory=list)
    num_prefill_tokens: int = 0
    num_decode_tokens: int = 0
    started_s: float = 0.0
    is_trial: bool = False
    is_void: bool = False

    def mark_started(self) -> None:
        """Notes that the batch is under way: for all that is started behind it, these scheduled sequences are done."""
        for group in self.groups:
            group.num_in_flight += 1
            if group.scheduled_s is None:
                group.scheduled_s = self.started_s
        for scheduled in self.done_ahead:
            scheduled.sequence.num_computed_tokens += scheduled.num_new_tokens
            scheduled.sequence.num_pending_tokens += scheduled.samples

    def mark_finished(self) -> None:
        """Takes back what `mark_started` noted: from here on the batch's results count, if there are any."""
        for group in self.groups:
            group.num_in_flight -= 1
        for scheduled in self.done_ahead:
            scheduled.sequence.num_computed_tokens -= scheduled.num_new_tokens
            scheduled.sequence.num_pending_tokens -= scheduled.samples
