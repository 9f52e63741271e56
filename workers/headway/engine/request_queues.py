"""The waiting and running queues of an engine."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import pairwise
from operator import attrgetter

from headway.core.fair_share import FairShare
from headway.core.request import FinishReason, SequenceOutput
from headway.engine.block_manager import BlockManager
from headway.engine.group import SequenceGroup
from headway.engine.output import end_output
from headway.engine.sequence import Sequence, SequenceStatus

_PLACE = attrgetter("place")


class RequestQueues:
    """The waiting and running queues: all groups that have not ended, each queue in the order of their places.

    First come, first served, every running group comes before every waiting one. By another policy one that waits may
    have come before one that runs.

    Attributes:
        running: groups that hold blocks and are computed, the first in line first.
        waiting: groups to be admitted or brought back, the first in line first.
        ended: outputs of sequences that ended without a step and were not reported yet.
        fair_share: between the tenants of the groups.
    """

    def __init__(self, blocks: BlockManager) -> None:
        self.running: list[SequenceGroup] = []
        self.waiting: list[SequenceGroup] = []
        self.ended: list[SequenceOutput] = []
        self.fair_share = FairShare()
        self._blocks = blocks
        self._newest: SequenceGroup | None = None  # of the running ones, the one that was admitted last
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
        """Whether tokens are left to compute behind what is scheduled, of any running group.

        Only the newest can have any: nobody is admitted behind an unfinished prefill. After a step that failed others
        may have some too; they are not counted.
        """
        return self._newest is not None and self._newest.is_prefilling

    @property
    def is_newest_last(self) -> bool:
        """Whether the newest of the running groups is the last in line, as it is first come, first served."""
        return self._newest is None or self.running[-1] is self._newest

    @property
    def num_scheduled(self) -> int:
        """The number of scheduled sequences of the running groups, without groups in their prefill."""
        return sum([len(group.scheduled_sequences) for group in self.running if not group.is_prefilling])

    @property
    def num_scheduled_in_flight(self) -> int:
        """The number of those scheduled sequences that are in a batch in flight."""
        return sum(
            [
                len(group.scheduled_sequences)
                for group in self.running
                if group.num_in_flight and not group.is_prefilling
            ]
        )

    @property
    def num_waiting(self) -> int:
        """Sequences of waiting groups, swapped ones among them."""
        return sum(len(group.sequences) for group in self.waiting)

    @property
    def num_swapped(self) -> int:
        return sum(len(group.sequences) for group in self.waiting if group.status is SequenceStatus.SWAPPED)

    @property
    def num_context_tokens(self) -> int:
        """Context lengths of the running sequences, added up."""
        return sum([sequence.num_computed_tokens for group in self.running for sequence in group.sequences])

    @property
    def num_pending_prefill_tokens(self) -> int:
        """Tokens that are known but not computed; the one that a decode computes next is not counted.

        Of the running groups only the newest can have any, see `is_prefilling`.
        """
        num_tokens = sum([group.num_pending_prefill_tokens for group in self.waiting])
        return num_tokens if self._newest is None else num_tokens + self._newest.num_pending_prefill_tokens

    @property
    def next_waiting(self) -> SequenceGroup:
        """The group to be admitted next: the first in line of the tenant that is next."""
        if not self.fair_share.is_shared:
            return self.waiting[0]
        firsts: dict[str, SequenceGroup] = {}
        for group in self.waiting:
            firsts.setdefault(group.tenant, group)
        return firsts[min(firsts, key=self.fair_share.time)]

    def find(self, request_id: str) -> SequenceGroup | None:
        return self._group_of.get(request_id)

    def enqueue(self, group: SequenceGroup) -> None:
        """Lets a new group wait at its place."""
        self.fair_share.enter(group.tenant, weight=group.tenant_weight)
        self._register(group)
        insort(self.waiting, group, key=_PLACE)

    def start(self, group: SequenceGroup) -> None:
        """Lets a waiting group run."""
        del self.waiting[bisect_left(self.waiting, group.place, key=_PLACE)]
        group.set_status(SequenceStatus.RUNNING)
        group.len_at_start = group.longest_len
        insort(self.running, group, key=_PLACE)
        self._newest = group

    def stop(self, group: SequenceGroup) -> None:
        """Lets a running group wait at its place; its status is the caller's to set."""
        del self.running[bisect_left(self.running, group.place, key=_PLACE)]
        self._forget(group)
        insort(self.waiting, group, key=_PLACE)

    def split(self, group: SequenceGroup) -> SequenceGroup:
        """Makes the last of several samples a group of its own, which waits, in line right behind `group`."""
        sequence = group.sequences[-1]
        group.leave(sequence, self._blocks)
        rank, arrival, _ = group.place
        place = (rank, arrival, len(group.sequences))  # before the parts that were split off earlier
        part = SequenceGroup(
            [sequence],
            place,
            num_preemptions=group.num_preemptions + 1,
            tenant=group.tenant,
            tenant_weight=group.tenant_weight,
        )
        part.set_status(SequenceStatus.WAITING)
        part.scheduled_s, part.first_token_s = group.scheduled_s, group.first_token_s
        self.enqueue(part)
        return part

    def end(self, request_id: str) -> None:
        """Forgets a sequence, or the beams of a search, and frees its blocks."""
        group = self._group_of.pop(request_id)
        for sequence in [member for member in group.sequences if member.request_id == request_id]:
            group.leave(sequence, self._blocks)
        if group.sequences:
            return
        line = self.running if group.status is SequenceStatus.RUNNING else self.waiting
        del line[bisect_left(line, group.place, key=_PLACE)]
        self._forget(group)
        self.fair_share.leave(group.tenant)

    def fail(self, request_id: str, error: str) -> None:
        """Ends a sequence, or the beams of a search, with an error."""
        sequence = next(member for member in self._group_of[request_id].sequences if member.request_id == request_id)
        self.end(request_id)
        self.ended.append(end_output(sequence, reason=FinishReason.ERROR, error=error))

    def take_ended(self) -> list[SequenceOutput]:
        """Returns the outputs of sequences that ended without a step. Each output is returned once."""
        ended, self.ended = self.ended, []
        return ended

    def check_integrity(self) -> None:
        """Asserts that every group has one place and the right status, and that they stand in line."""
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
        for line in (self.running, self.waiting):
            assert all(a.place < b.place for a, b in pairwise(line)), "not in order"
        assert self._newest is None or self._newest in self.running, "the newest of the running groups does not run"

    def _register(self, group: SequenceGroup) -> None:
        self._group_of.update((sequence.request_id, group) for sequence in group.sequences)

    def _forget(self, group: SequenceGroup) -> None:
        """Clears the record of the newest group if this group is the newest; it no longer runs."""
        if group is self._newest:
            self._newest = None
