"""Where every group stands: it runs, or it waits to."""

from collections import OrderedDict
from collections.abc import Iterator
from itertools import pairwise, takewhile

from headway.core.request import FinishReason, SequenceOutput
from headway.engine.block_manager import BlockManager
from headway.engine.group import SequenceGroup
from headway.engine.output import end_output
from headway.engine.sequence import Sequence, SequenceStatus


class Roster:
    """All groups that have not ended. Every running one arrived before every waiting one.

    Attributes:
        running: oldest first.
        waiting: oldest first, the preempted ones before the new ones.
        ended: what is still to be told of sequences that ended without a step.
    """

    def __init__(self, blocks: BlockManager) -> None:
        self.running: list[SequenceGroup] = []
        self.waiting: OrderedDict[SequenceGroup, None] = OrderedDict()
        self.ended: list[SequenceOutput] = []
        self._blocks = blocks
        self._group_of: dict[str, SequenceGroup] = {}  # by request id; the beams of a search have one in common

    def __bool__(self) -> bool:
        """Whether there is anything to do or to tell."""
        return bool(self._group_of or self.ended)

    @property
    def groups(self) -> Iterator[SequenceGroup]:
        yield from self.running
        yield from self.waiting

    @property
    def sequences(self) -> Iterator[Sequence]:
        return (sequence for group in self.groups for sequence in group.sequences)

    @property
    def request_ids(self) -> list[str]:
        return list(self._group_of)

    @property
    def num_running(self) -> int:
        """Sequences of running groups."""
        return sum([len(group.sequences) for group in self.running])

    @property
    def num_places_taken(self) -> int:
        """Sequences that the running groups may come to."""
        return sum(group.num_places for group in self.running)

    @property
    def is_prefilling(self) -> bool:
        """Whether tokens are left to compute behind what is scheduled: of the running groups only the last has any."""
        return bool(self.running) and self.running[-1].is_prefilling

    @property
    def num_shares(self) -> int:
        """What the running groups have to compute in a step, those in their prefill left out."""
        return sum([len(group.shares) for group in self.running if not group.is_prefilling])

    @property
    def num_shares_in_flight(self) -> int:
        """Of those, the ones that are being computed."""
        return sum([len(group.shares) for group in self.running if group.num_in_flight and not group.is_prefilling])

    @property
    def num_waiting(self) -> int:
        """Sequences of waiting groups, swapped ones among them."""
        return sum(len(group.sequences) for group in self.waiting)

    @property
    def num_swapped(self) -> int:
        preempted = takewhile(lambda group: group.num_preemptions, self.waiting)
        return sum(len(group.sequences) for group in preempted if group.status is SequenceStatus.SWAPPED)

    @property
    def num_context_tokens(self) -> int:
        """Context lengths of the running sequences, added up."""
        return sum([sequence.num_computed_tokens for group in self.running for sequence in group.sequences])

    @property
    def num_pending_prefill_tokens(self) -> int:
        """Tokens that are known but not computed; the one that a decode computes next is not counted.

        Of the running groups only the last can have any: nobody is admitted behind an unfinished prefill.
        """
        groups = (*self.running[-1:], *self.waiting)
        return sum(group.num_pending_prefill_tokens for group in groups)

    def find(self, request_id: str) -> SequenceGroup | None:
        return self._group_of.get(request_id)

    def enqueue(self, group: SequenceGroup) -> None:
        """Lets a new group wait behind all others."""
        self._register(group)
        self.waiting[group] = None

    def next_waiting(self) -> SequenceGroup:
        return next(iter(self.waiting))

    def start_next(self) -> None:
        """Lets the first of the waiting groups run."""
        group, _ = self.waiting.popitem(last=False)
        group.set_status(SequenceStatus.RUNNING)
        self.running.append(group)

    def stop_last(self) -> None:
        """Lets the last of the running groups wait before all others; its status is the caller's to set."""
        self._put_first(self.running.pop())

    def split(self, group: SequenceGroup) -> SequenceGroup:
        """Makes the last of several samples a group of its own, which waits right behind `group`."""
        sequence = group.sequences[-1]
        group.leave(sequence, self._blocks)
        part = SequenceGroup([sequence], group.arrival_s, num_preemptions=group.num_preemptions + 1)
        part.set_status(SequenceStatus.WAITING)
        part.scheduled_s, part.first_token_s = group.scheduled_s, group.first_token_s
        self._register(part)
        self._put_first(part)
        if group in self.waiting:
            self._put_first(group)
        return part

    def end(self, request_id: str) -> None:
        """Forgets a sequence, or the beams of a search, and frees its blocks."""
        group = self._group_of.pop(request_id)
        for sequence in [member for member in group.sequences if member.request_id == request_id]:
            group.leave(sequence, self._blocks)
        if group.sequences:
            return
        if group.status is SequenceStatus.RUNNING:
            self.running.remove(group)
        else:
            del self.waiting[group]

    def fail(self, request_id: str, error: str) -> None:
        """Ends a sequence, or the beams of a search, with an error."""
        sequence = next(member for member in self._group_of[request_id].sequences if member.request_id == request_id)
        self.end(request_id)
        self.ended.append(end_output(sequence, reason=FinishReason.ERROR, error=error))

    def take_ended(self) -> list[SequenceOutput]:
        """What is to be told of sequences that ended without a step; it is told once."""
        ended, self.ended = self.ended, []
        return ended

    def check_integrity(self) -> None:
        """Asserts that every group has one place and the right status, and that they stand in order of arrival."""
        self._blocks.check_integrity(self.sequences)
        assert {member.request_id for member in self.sequences} == self._group_of.keys(), "a sequence is lost"
        assert all(member in self._group_of[member.request_id].sequences for member in self.sequences)
        assert all(group.status is SequenceStatus.RUNNING for group in self.running), "a running group has stopped"
        for group in self.waiting:
            assert group.num_in_flight == 0, "a waiting group is in flight"
            assert group.status in (SequenceStatus.WAITING, SequenceStatus.SWAPPED), "a waiting group runs"
            held = [member for member in group.sequences if member.block_table or member.host_block_table]
            assert not held or group.status is SequenceStatus.SWAPPED, "a waiting group holds blocks"
        for group in self.groups:
            assert all(member.status is group.status for member in group.sequences), "a group is not of one status"
            assert not any(member.block_table for member in group.followers), "a follower holds blocks"
        assert all(a.arrival_s <= b.arrival_s for a, b in pairwise(self.groups)), "not in order"

    def _register(self, group: SequenceGroup) -> None:
        self._group_of.update((sequence.request_id, group) for sequence in group.sequences)

    def _put_first(self, group: SequenceGroup) -> None:
        self.waiting[group] = None
        self.waiting.move_to_end(group, last=False)
