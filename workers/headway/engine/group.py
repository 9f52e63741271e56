"""A sequence group: the sequences of one prompt, admitted, preempted and brought back together (dissertation 5.4.5).

What they have in common is computed once, by the first of them, the leader; then the others fork its blocks:

    leader    [common tokens ......|own tokens ..]        prefill of the common ones, by the leader alone
    followers                      |own tokens ..]        fork; from here on each computes its own

A fresh group has no tokens but common ones: the followers sample their first token from the leader's logits.
"""

from dataclasses import dataclass, field
from itertools import takewhile

from headway.core.line import Rank
from headway.engine.batch import ScheduledSequence
from headway.engine.beam import BeamState
from headway.engine.block_manager import BlockManager
from headway.engine.limits import ends_in_flight
from headway.engine.sequence import Sequence, SequenceStatus

Place = tuple[Rank, int, int]
"""Rank, number of the arrival, and place of a sample that has become a group of its own among its siblings."""


@dataclass(slots=True, eq=False)
class SequenceGroup:
    """The sequences of one prompt, which are admitted, preempted and brought back together.

    Attributes:
        sequences: those that have not ended, the leader first; of a beam search, its live beams, best first.
        place: its position in the queues, for good: the lowest is first. No two groups have the same.
        beams: the state of a beam search, or None: then the sequences are independent samples.
        status: waiting, running or swapped; all its sequences share it.
        scheduled_sequences: what each sequence computes in a step. Until the fork there is only the leader's.
        num_common_tokens: leading tokens that the leader computes for all, or None if there are none, or the others
            have forked.
        num_preemptions: how often it was preempted.
        num_in_flight: batches under way that hold its scheduled sequences. Until the last of them is back, the group
            runs: it is neither preempted nor split nor forked. Its sequences may end at any time.
        scheduled_s: when its first step began; None before.
        first_token_s: when its first token was known; None before.
        is_prefilling: tokens were left to compute behind its latest scheduled sequences.
        needs_last_token: see `SamplingParams.needs_last_token`.
        arrival_s: when its sequences arrived.
        tenant, tenant_weight: of its requests.
        len_at_start: tokens of its longest sequence when it was last admitted.
        turn: grows with the latest step that held it, where tenants take turns (`engine.pace`).
    """

    sequences: list[Sequence]
    place: Place
    beams: BeamState | None = None
    tenant: str = ""
    tenant_weight: float = 1.0
    len_at_start: int = 0
    turn: int = 0
    status: SequenceStatus = SequenceStatus.WAITING
    scheduled_sequences: list[ScheduledSequence] = field(default_factory=list)
    num_common_tokens: int | None = None
    num_preemptions: int = 0
    num_in_flight: int = 0
    scheduled_s: float | None = None
    first_token_s: float | None = None
    is_prefilling: bool = False
    needs_last_token: bool = field(init=False)
    arrival_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.arrival_s = self.leader.arrival_s
        self.needs_last_token = self.leader.sampling.needs_last_token
        self.start_over()

    @property
    def leader(self) -> Sequence:
        return self.sequences[0]

    @property
    def followers(self) -> tuple[Sequence, ...]:
        """The sequences that wait for the leader to compute the prompt; empty once they have forked."""
        return () if self.num_common_tokens is None else tuple(self.sequences[1:])

    @property
    def holders(self) -> list[Sequence]:
        """The sequences that may hold blocks: only the leader before the fork, all of them after it."""
        return self.sequences if self.num_common_tokens is None else self.sequences[:1]

    @property
    def num_places(self) -> int:
        """Sequences that it may run at once."""
        return len(self.sequences) if self.beams is None else self.beams.width

    @property
    def longest_len(self) -> int:
        """Tokens of its longest sequence."""
        return max([len(sequence) for sequence in self.sequences])

    @property
    def has_advanced(self) -> bool:
        """Whether it has got a token since it was last admitted."""
        return self.longest_len > self.len_at_start

    @property
    def can_run_ahead(self) -> bool:
        """Whether more can be started before the results of what is in flight are there: chunks of the same prompt."""
        return self.is_prefilling and len(self.scheduled_sequences) == 1 and not self.scheduled_sequences[0].samples

    @property
    def holds_up(self) -> bool:
        """Whether all are to wait for its results, because its next tokens cannot be chosen without them."""
        return self.needs_last_token and self.num_in_flight > 0 and not self.is_prefilling

    def can_decode_ahead(self, *, max_sequence_len: int) -> bool:
        """Whether its next tokens can be started before those in flight are known: if it is certain that they will be
        wanted, but for stop tokens, and nobody waits to fork."""
        if self.num_common_tokens is not None or self.needs_last_token:
            return False
        return not any(ends_in_flight(member, max_sequence_len=max_sequence_len) for member in self.sequences)

    @property
    def has_prompt_in_flight(self) -> bool:
        """Whether its latest scheduled sequences compute more than last tokens and drafts, and are not back."""
        return self.num_in_flight > 0 and any(
            scheduled.num_new_tokens - len(scheduled.draft_token_ids) > 1 for scheduled in self.scheduled_sequences
        )

    @property
    def can_split(self) -> bool:
        """Whether its sequences can go their own ways."""
        return self.beams is None and len(self.sequences) > 1

    @property
    def num_pending_prefill_tokens(self) -> int:
        """Tokens that are known but not computed; of each sequence, the one that a decode computes next is left out."""
        if len(self.sequences) == 1:
            return max(0, self.leader.num_uncomputed_tokens - 1)
        num_forked = self.num_common_tokens or 0
        own = sum(max(0, len(follower) - num_forked - 1) for follower in self.followers)
        return own + sum(max(0, holder.num_uncomputed_tokens - 1) for holder in self.holders)

    def num_follower_blocks(self, block_size: int) -> int:
        """Blocks that all but the leader will have besides the common ones, when all of their tokens are computed."""
        num_shared = (self.num_common_tokens or 0) // block_size
        return sum(-(-len(sequence) // block_size) - num_shared for sequence in self.sequences[1:])

    def set_status(self, status: SequenceStatus) -> None:
        self.status = status
        for sequence in self.sequences:
            sequence.status = status

    def start_over(self) -> None:
        """Prepares the computation of all tokens, the common ones first."""
        self.num_common_tokens = (_num_common_tokens(self.sequences) or None) if len(self.sequences) > 1 else None
        self.renew_scheduled()
        if self.beams is not None:
            self.beams.forget_candidates()

    def fork(self, blocks: BlockManager) -> None:
        """Lets the followers have what the leader has computed."""
        for follower in self.followers:
            blocks.fork(self.leader, follower)
            follower.prompt_logprobs = list(self.leader.prompt_logprobs)
            follower.num_cached_tokens = self.leader.num_cached_tokens
        self.num_common_tokens = None
        self.renew_scheduled()

    def leave(self, sequence: Sequence, blocks: BlockManager) -> None:
        """Takes a sequence out and frees its blocks; a leader for whom others wait leaves them what it has computed."""
        followers = self.followers
        if followers and sequence is self.leader:
            self._hand_over(followers[0], blocks)
        blocks.free(sequence)
        sequence.status = SequenceStatus.FINISHED
        self.sequences.remove(sequence)
        if len(self.sequences) == 1:
            self.num_common_tokens = None
        if followers:
            self.renew_scheduled()
        else:
            self.scheduled_sequences = [
                scheduled for scheduled in self.scheduled_sequences if scheduled.sequence is not sequence
            ]

    def replace(self, survivors: list[tuple[int, int]], blocks: BlockManager) -> None:
        """Continues a beam search: each survivor is (index of its parent, its new token).

        A parent's first child takes over its blocks, further ones fork them, and parents without children end.
        """
        parents, children = self.sequences, []
        heirs: set[int] = set()
        for index, _ in survivors:
            if index in heirs:
                child = parents[index].copy()
                blocks.fork(parents[index], child)
            else:
                child = parents[index]
                heirs.add(index)
            children.append(child)
        for child, (_, token_id) in zip(children, survivors, strict=True):
            child.token_ids.append(token_id)
        for index, parent in enumerate(parents):
            if index not in heirs:
                blocks.free(parent)
                parent.status = SequenceStatus.FINISHED
        self.sequences = children
        self.renew_scheduled()

    def renew_scheduled(self) -> None:
        """Leaves the scheduled sequences that are in flight alone, and plans the next ones anew."""
        self.scheduled_sequences = [ScheduledSequence(sequence, 0, samples=False) for sequence in self.holders]

    def _hand_over(self, heir: Sequence, blocks: BlockManager) -> None:
        if self.num_in_flight:
            return  # the heir starts over: what is in flight is lost with its owner
        if self.status is SequenceStatus.RUNNING:
            blocks.fork(self.leader, heir)
            heir.prompt_logprobs = self.leader.prompt_logprobs
            heir.num_cached_tokens = self.leader.num_cached_tokens
        else:
            self.set_status(SequenceStatus.WAITING)  # what lies on the host goes: only what runs can be forked


def _num_common_tokens(sequences: list[Sequence]) -> int:
    """Leading tokens that are equal in all; one less where one sequence ends there and others go on.

    That one's last token is left for itself to compute, because it gives the logits of its next one.
    """
    columns = zip(*(sequence.token_ids for sequence in sequences), strict=False)
    num_equal = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))
    lengths = {len(sequence) for sequence in sequences}
    return num_equal if lengths == {num_equal} else min(num_equal, min(lengths) - 1)
