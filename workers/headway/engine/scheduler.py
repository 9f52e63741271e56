"""Chooses the tokens that each step computes: iteration-level scheduling with chunked prefill, in queue order.

The policy (`EngineConfig.queue_policy`) gives each group of sequences its place in line when it comes, and for good.
The first of those that wait is admitted; when memory runs out, the last of those that run gives way and waits at its
place again. First come, first served, every running group comes before every waiting one:

    running: [decode, decode, ..., decode, prefill]    waiting: [preempted, ..., new, new]
              first                        <- preempted from here, to here ->        last

By another policy, whoever comes may overtake those that wait. It takes nothing from those that run while there is room
for it: what has begun goes on, and a prompt is computed to its end.

A group is admitted, preempted and brought back whole. A prefill takes all of the budget that the decodes leave, and
nobody is admitted behind an unfinished one, so decodes never wait for it.

Several batches can be under way, and a group is in one of them at a time: each takes an equal part of the groups, the
first in line that are free, so all have their turn. Only the chunks of a prompt follow each other without waiting,
because none needs what another one samples. Where memory runs out and the group that would have to give way is in
flight, nothing more is scheduled before the next batch is back.

An engine that runs ahead has two batches under way, of the same groups: the second one computes the tokens that the
first one samples. What a sequence that has ended meanwhile gets from the second one is dropped. Groups that are certain
to end, or fork, with what is in flight are left out of it; and there is no second one while a group in flight needs its
last tokens to choose the next ones (guides, penalties, bad words, beams), or while there are drafts, which grow out of
known tokens.

Tenants have an order among themselves (`core.fair_share`): of those that wait, the first of the tenant that has had
least is admitted; where memory runs out, the last of the one that has had most gives way; and a tenant that has less
than its share of the places or of the memory gets the rest of it from those that have more (`engine.tenant_order`).
Groups of one that has many miss steps that would be long for the others (`engine.pace`).

The first in line of those that run can always take its next step, so every sequence ends, as long as not ever more
urgent ones come: the others give way to it, and `max_sequence_len` keeps a sequence within the pool. Of samples that
outgrow the pool together, the last one becomes a group of its own, which comes right behind them in line. A beam search
that could outgrow the pool is refused.
"""

from collections.abc import Sequence as Groups

from headway.engine.batch import ScheduledSequence
from headway.engine.block_manager import BlockManager
from headway.engine.config import EngineConfig
from headway.engine.drafts import Drafter
from headway.engine.group import SequenceGroup
from headway.engine.micro_batch import MicroBatch
from headway.engine.pace import Pace
from headway.engine.preemption import PreemptionPolicy
from headway.engine.rebalancing import Rebalancer
from headway.engine.request_queues import RequestQueues
from headway.engine.sequence import Sequence, SequenceStatus
from headway.engine.tenant_order import TenantOrder

_NO_ROOM = "Pinned prefixes have taken the memory that this request needs; it has been given up."


class Scheduler:
    """Turns groups into batches.

    Attributes:
        num_preemptions: since the start, of groups.
        num_swaps: of those, the ones that moved blocks to the host.
        num_prefix_queries, num_prefix_hits: tokens looked up in the prefix cache, and found.
    """

    def __init__(
        self, config: EngineConfig, *, queues: RequestQueues, blocks: BlockManager, policy: PreemptionPolicy
    ) -> None:
        self._config = config
        self._max_tokens = config.max_num_batched_tokens
        self._max_prefill_tokens = config.max_num_prefill_tokens_per_batch
        self._queues = queues
        self._blocks = blocks
        self._policy = policy
        self._drafter = Drafter(config, blocks=blocks) if config.num_draft_tokens else None
        self._tenant_order = TenantOrder(config, queues=queues, blocks=blocks)
        self._pace = Pace(queues, max_num_prefill_tokens=self._max_prefill_tokens)
        self._rebalancer = Rebalancer(config, blocks=blocks)
        self._runs_ahead = config.runs_ahead and self._drafter is None
        self._planned = MicroBatch()
        self._batch = self._planned.batch
        self._line = queues.running
        self._num_in_flight = 0
        self._max_sequence_len = 0
        self._must_wait = False  # for a group in flight, which is to give way
        self._held: set[SequenceGroup] = set()  # to miss this step: it gives way when it is back, or the step is long
        self.num_preemptions = 0
        self.num_swaps = 0
        self.num_prefix_queries = 0
        self.num_prefix_hits = 0

    def may_start(self, *, num_in_flight: int) -> bool:
        """Whether another batch may be started behind so many."""
        if num_in_flight < self._config.num_micro_batches:
            return True
        return self._runs_ahead and num_in_flight == 1 and not any(group.holds_up for group in self._queues.running)

    def observe_step(self, num_tokens: int, duration_s: float) -> None:
        """Notes how long the computation of a batch took, in seconds."""
        self._pace.observe_step(num_tokens, duration_s)

    def schedule(self, *, num_in_flight: int, now_s: float, among: Groups[SequenceGroup] | None = None) -> MicroBatch:
        """Returns the next batch to start, made of the groups that need not wait for what is in flight.

        It may hold nothing but copies; those must be carried out all the same.

        Args:
            num_in_flight: the number of batches in flight; `may_start` says whether there may be one more.
            now_s: monotonic seconds.
            among: the running groups to choose from; None for all of them and those that can be admitted.
        """
        self._num_in_flight = num_in_flight
        self._planned = planned = MicroBatch()
        self._batch = batch = planned.batch
        self._must_wait = False
        self._max_sequence_len = self._config.max_sequence_len_within(self._blocks.num_unpinned_blocks)
        self._held = set()
        if among is None:
            self._held.update(self._pace.held(now_s=now_s, can_go_on=self._can_go_on))
            self._give_way()
        self._schedule_running(among)
        is_one_line = self._line is self._queues.running
        if planned.num_prefill_tokens and not (is_one_line and self._queues.is_newest_last):
            batch.sequences.sort(key=_is_chunk)  # decodes first, as kernels want them
        if among is None:
            self._admit_waiting()
            self._pace.settle(planned)
        self._tenant_order.charge(planned)
        planned.num_decode_tokens = batch.num_tokens - planned.num_prefill_tokens
        if self._drafter is not None:
            self._drafter.attach(batch, max_sequence_len=self._max_sequence_len)
        if self._runs_ahead:
            planned.done_ahead = batch.sequences
        self._rebalancer.advance(self._queues.sequences)
        batch.swap_out, batch.swap_in, batch.block_copies = self._blocks.take_copies()
        assert self._queues.running or not self._queues.waiting, "groups are left that cannot be scheduled"
        return planned

    def _schedule_running(self, among: Groups[SequenceGroup] | None) -> None:
        self._line, index = self._tenant_order.line(), 0
        line, batched, max_scheduled = self._line, self._batch.sequences, self._max_scheduled()
        while index < len(line):  # which preemption shortens from its end
            group = line[index]
            if (among is not None and group not in among) or group in self._held or not self._can_go_on(group):
                index += 1
                continue
            if group.num_in_flight:
                group.renew_scheduled()
            elif len(batched) >= max_scheduled and not group.is_prefilling:
                index += 1
                continue
            num_blocks = self._plan(group, index + 1)
            if num_blocks == 0 or self._make_room(group, num_blocks):
                self._enter(group)
                index += 1
            elif self._must_wait:
                return

    def _can_go_on(self, group: SequenceGroup) -> bool:
        """Whether more of a group can be started before the results are there of what it has in flight."""
        if group.num_in_flight == 0 or group.can_run_ahead:
            return True
        return self._runs_ahead and group.can_decode_ahead(max_sequence_len=self._max_sequence_len)

    def _max_scheduled(self, *, num_waiting: int = 0) -> int:
        """Returns how many sequences the batch may take so that all batches are equal. Its last group may bring more.

        It leaves as many to each of those that can be started after it, but never more than an equal part of all: so
        what has become unequal becomes equal again.
        """
        queues, num_batches = self._queues, self._config.num_micro_batches
        if num_batches == 1:
            return self._config.max_num_seqs
        num_scheduled = min(queues.num_scheduled + num_waiting, self._config.max_num_seqs)
        num_free = num_scheduled - queues.num_scheduled_in_flight
        return min(-(-num_scheduled // num_batches), -(-num_free // (num_batches - self._num_in_flight)))

    def _plan(self, group: SequenceGroup, behind: int | None = None) -> int:
        """Sets what each sequence of the group is to compute; returns how many blocks that takes at most.

        Args:
            behind: from which group in line on others are to have their decodes all the same; None for none.
        """
        planned, blocks = self._planned, self._blocks
        budget = self._max_tokens - planned.batch.num_tokens
        prefill_budget = self._max_prefill_tokens - planned.num_prefill_tokens
        num_common_tokens = group.num_common_tokens
        num_blocks = 0
        for scheduled in group.scheduled_sequences:
            sequence = scheduled.sequence
            num_known = len(sequence.token_ids) + sequence.num_pending_tokens
            num_computed = sequence.num_computed_tokens
            num_new = (num_common_tokens or num_known) - num_computed
            if num_new > 1:
                num_reserved = 0 if behind is None else self._num_shares_from(behind)
                num_new = max(0, min(num_new, prefill_budget, budget - num_reserved))
                prefill_budget -= num_new
            if num_new > budget:
                num_new = budget
            budget -= num_new
            end = num_computed + num_new
            scheduled.start = num_computed
            scheduled.num_new_tokens = num_new
            scheduled.draft_token_ids = ()
            scheduled.samples = num_new > 0 and end == num_known
            if num_common_tokens is not None:
                scheduled.followers = group.followers if scheduled.samples else ()
            if num_new:
                num_blocks += blocks.num_blocks_to_grow(sequence, num_tokens=end)
        return num_blocks

    def _num_shares_from(self, index: int) -> int:
        """Returns the number of scheduled sequences of the groups in line from `index` on."""
        return sum([len(group.scheduled_sequences) for group in self._line[index:]])

    def _enter(self, group: SequenceGroup) -> None:
        """Adds what was planned to the batch."""
        planned, batch = self._planned, self._batch
        has_scheduled = is_prefilling = False
        for scheduled in group.scheduled_sequences:
            num_new = scheduled.num_new_tokens
            if num_new:
                has_scheduled = True
                batch.sequences.append(scheduled)
                batch.num_tokens += num_new
            if not scheduled.samples:
                is_prefilling = True
                planned.done_ahead.append(scheduled)
                planned.num_prefill_tokens += num_new
            elif num_new > 1:
                planned.num_prefill_tokens += num_new
        group.is_prefilling = is_prefilling
        if has_scheduled:
            planned.groups.append(group)

    def _make_room(self, group: SequenceGroup, num_blocks: int) -> bool:
        """Gives a group the blocks of its plan, at the expense of the last in line.

        False if the last is in flight, and this one must wait; if it is itself the last and has given way; or if
        it is alone and has given up a sequence: then the rest is to be planned anew.
        """
        line = self._line
        while num_blocks > self._blocks.num_available_blocks:
            victim = line[-1]
            if victim.num_in_flight:
                self._must_wait = True
                return False
            if len(line) == 1:
                break
            self._preempt(victim)
            self._leave_line(victim)
            if victim is group:
                return False
        if num_blocks > self._blocks.num_available_blocks and group.can_split:
            self._split(group)
            return False
        if not self._grow(group):
            self._give_up(group)
            self._leave_line(group)
            return False
        return True

    def _leave_line(self, group: SequenceGroup) -> None:
        """Takes out one that runs no more, where the line is not the queue itself."""
        if self._line is not self._queues.running:
            self._line.remove(group)

    def _grow(self, group: SequenceGroup) -> bool:
        """Gives a group the blocks of its plan. Beams can need fewer than planned: the last writer needs no copy."""
        return all(
            self._blocks.grow(
                scheduled.sequence, num_tokens=scheduled.sequence.num_computed_tokens + scheduled.num_new_tokens
            )
            for scheduled in group.scheduled_sequences
            if scheduled.num_new_tokens
        )

    def _give_way(self) -> None:
        """Makes room for the next tenant, where others have more than their share."""
        while (group := self._tenant_order.giver()) is not None:
            if group.num_in_flight:
                self._held.add(group)
                return
            if group.can_split:
                self._split(group)
            else:
                self._preempt(group)

    def _preempt(self, group: SequenceGroup) -> None:
        """Makes a running group wait."""
        holders = group.holders
        swaps = self._policy.prefers_swap(
            num_tokens=self._blocks.num_tokens_to_recompute(holders),
            num_blocks=self._blocks.num_blocks_to_swap(holders),
        ) and self._blocks.swap_out(holders)
        if swaps:
            self.num_swaps += 1
            group.set_status(SequenceStatus.SWAPPED)
        else:
            self._drop(group)
        group.num_preemptions += 1
        self.num_preemptions += 1
        self._queues.stop(group)

    def _drop(self, group: SequenceGroup) -> None:
        """Takes all blocks of a group, whose tokens will be computed again."""
        for sequence in group.holders:
            self._blocks.free(sequence)
        group.set_status(SequenceStatus.WAITING)
        group.start_over()

    def _split(self, group: SequenceGroup) -> None:
        """Lets the last of several samples wait for the others: together they have outgrown the pool."""
        self._queues.split(group)
        self.num_preemptions += 1

    def _give_up(self, group: SequenceGroup) -> None:
        """Ends a group that is alone and has no room: prefixes were pinned after it had been accepted."""
        for request_id in {sequence.request_id for sequence in group.sequences}:
            self._queues.fail(request_id, _NO_ROOM)

    def _admit_waiting(self) -> None:
        queues, batched = self._queues, self._batch.sequences
        if self._must_wait or not queues.waiting:
            return
        max_scheduled = self._max_scheduled(num_waiting=len(queues.waiting))
        while queues.waiting and not queues.is_prefilling and self._prefill_budget() > 0:
            group = queues.next_waiting
            if len(batched) >= max_scheduled:
                return
            if queues.num_places_taken + group.num_places > self._config.max_num_seqs:
                return
            if self._take_in(group):
                queues.start(group)
                self._start(group)
            elif queues.running:
                return
            elif group.can_split:
                self._split(group)
            else:
                self._give_up(group)

    def _take_in(self, group: SequenceGroup) -> bool:
        """Gives a waiting group its first blocks, or the ones it had back; False if it must wait on."""
        num_reserved = self._config.num_watermark_blocks if self._queues.running else 0
        if group.status is not SequenceStatus.SWAPPED:
            return self._adopt_prefix(group, num_reserved)
        if not self._blocks.can_swap_in(group.holders, num_reserved=num_reserved):
            return False
        self._blocks.swap_in(group.holders)
        return True

    def _adopt_prefix(self, group: SequenceGroup, num_reserved: int) -> bool:
        """Starts the table of the leader with what the prefix cache holds.

        A new group needs room for its first chunk only. One that was preempted comes back when all of its tokens
        fit, lest it lose its blocks again before it gets as far as it was.
        """
        if self._blocks.num_available_blocks <= num_reserved:
            return False
        leader, block_size = group.leader, self._config.block_size
        prefix = self._blocks.find_prefix(leader)
        num_to_compute = group.num_common_tokens or len(leader)
        del prefix[num_to_compute // block_size :]
        num_cached = len(prefix) * block_size
        if group.num_preemptions:
            num_needed = len(leader)
            num_reserved += group.num_follower_blocks(block_size)
        else:
            num_needed = num_cached + min(num_to_compute - num_cached, self._prefill_budget())
        if not self._blocks.fits(prefix=prefix, num_tokens=num_needed, num_reserved=num_reserved):
            return False
        self._blocks.adopt(leader, prefix=prefix)
        if group.num_preemptions == 0:
            self._count_prefix(leader, num_cached)
        if num_cached == group.num_common_tokens:
            group.fork(self._blocks)
        return True

    def _start(self, group: SequenceGroup) -> None:
        """Schedules a group that has just been admitted, unless it needs more than there is: nobody gives way to it."""
        if self._plan(group) <= self._blocks.num_available_blocks:
            grown = self._grow(group)
            assert grown, "blocks that were counted are not there"
            self._enter(group)
        else:
            group.is_prefilling = True

    def _prefill_budget(self) -> int:
        num_left = self._max_tokens - self._batch.num_tokens
        return min(num_left, self._max_prefill_tokens - self._planned.num_prefill_tokens)

    def _count_prefix(self, leader: Sequence, num_cached_tokens: int) -> None:
        leader.num_cached_tokens = num_cached_tokens
        if self._config.enable_prefix_cache and not leader.owes_prompt_logprobs:
            self.num_prefix_queries += len(leader)
            self.num_prefix_hits += num_cached_tokens


def _is_chunk(scheduled: ScheduledSequence) -> bool:
    """Whether it computes more than the last token of its sequence."""
    return scheduled.num_new_tokens > 1 or not scheduled.samples
