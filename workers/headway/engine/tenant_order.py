"""The order between tenants at an engine: whose groups are last in line, and whose give way to others.

The order of admission alone would not do: long answers of one tenant can hold all places, or all memory, for minutes.
So the next group in line gets a place at the expense of another tenant, if that one has more than its share of what is
short, has been served more, and can give enough without falling below its share. What has to give way is the last in
line of the tenant that has been served most, and of several samples one after the other rather than all.
"""

from collections import Counter
from collections.abc import Callable

from headway.engine.block_manager import BlockManager
from headway.engine.config import EngineConfig
from headway.engine.group import SequenceGroup
from headway.engine.micro_batch import MicroBatch
from headway.engine.request_queues import RequestQueues
from headway.engine.sequence import SequenceStatus


class TenantOrder:
    """Knows whose turn it is to give way; to take something from it is the scheduler's. One tenant has nobody to give
    way to, and all of this costs nothing then."""

    def __init__(self, config: EngineConfig, *, queues: RequestQueues, blocks: BlockManager) -> None:
        self._config = config
        self._queues = queues
        self._blocks = blocks

    def giver(self) -> SequenceGroup | None:
        """Returns the running group that is to give way to the next tenant, in whole or in part; None where nobody
        is to."""
        queues = self._queues
        if not queues.fair_share.is_shared or not queues.waiting or not queues.running:
            return None
        newcomer, max_num_seqs = queues.next_waiting, self._config.max_num_seqs
        num_short = queues.num_places_taken + newcomer.num_places - max_num_seqs
        if num_short > 0:
            return self._victim(newcomer, newcomer.num_places, _num_places, total=max_num_seqs, num_short=num_short)
        num_blocks = self._num_blocks_to_start(newcomer)
        num_short = num_blocks + self._config.num_watermark_blocks - self._blocks.num_available_blocks
        if num_short > 0:
            total = self._blocks.num_unpinned_blocks
            return self._victim(newcomer, num_blocks, _num_blocks, total=total, num_short=num_short)
        return None

    def line(self) -> list[SequenceGroup]:
        """Returns the running groups, the last of which gives way first where memory runs out: those of tenants that
        have more than their share of it come last, of whom has been served most the very last."""
        queues, fair_share = self._queues, self._queues.fair_share
        if not fair_share.is_shared:
            return queues.running
        taken, total = self._taken(_num_blocks), self._blocks.num_unpinned_blocks
        debts = {
            tenant: fair_share.time(tenant) if num_taken > fair_share.share(tenant, total) else 0.0
            for tenant, num_taken in taken.items()
        }
        return sorted(queues.running, key=lambda group: debts[group.tenant])

    def charge(self, planned: MicroBatch) -> None:
        """Counts a batch's tokens, each for its tenant."""
        queues, fair_share = self._queues, self._queues.fair_share
        if fair_share.is_shared:
            for group in planned.groups:
                fair_share.charge(group.tenant, sum([each.num_new_tokens for each in group.scheduled_sequences]))
        elif queues.running:
            fair_share.charge(queues.running[0].tenant, planned.batch.num_tokens)

    def _taken(self, measure: Callable[[SequenceGroup], int]) -> Counter[str]:
        """Returns what each tenant's running groups have."""
        taken = Counter[str]()
        for group in self._queues.running:
            taken[group.tenant] += measure(group)
        return taken

    def _victim(
        self,
        newcomer: SequenceGroup,
        num_needed: int,
        measure: Callable[[SequenceGroup], int],
        *,
        total: int,
        num_short: int,
    ) -> SequenceGroup | None:
        """Returns the last group of the tenant that has been served most, of those that can give what is short; None
        where that has just begun."""
        fair_share, taken = self._queues.fair_share, self._taken(measure)
        own = newcomer.tenant
        if taken[own] and taken[own] + num_needed > fair_share.share(own, total):
            return None
        surplus = {
            tenant: num_taken - max(1, int(fair_share.share(tenant, total)))
            for tenant, num_taken in taken.items()
            if tenant != own and fair_share.time(tenant) >= fair_share.time(own)
        }
        givers = [tenant for tenant, num in surplus.items() if num > 0]
        if sum(surplus[tenant] for tenant in givers) < num_short:
            return None
        giver = max(givers, key=fair_share.time)
        # Whoever has got a place keeps it for a token at least, so that taking turns comes to an end.
        line = reversed(self._queues.running)
        return next((group for group in line if group.tenant == giver and group.has_advanced), None)

    def _num_blocks_to_start(self, group: SequenceGroup) -> int:
        """Returns how many blocks a waiting group needs to be admitted, at most: the prefix cache may have some."""
        block_size = self._config.block_size
        if group.status is SequenceStatus.SWAPPED:
            return sum(len(member.host_block_table) for member in group.holders)
        if group.num_preemptions:
            return -(-len(group.leader) // block_size) + group.num_follower_blocks(block_size)
        return -(-min(len(group.leader), self._config.max_num_prefill_tokens_per_batch) // block_size)


def _num_places(group: SequenceGroup) -> int:
    return group.num_places


def _num_blocks(group: SequenceGroup) -> int:
    return sum(len(member.block_table) for member in group.holders)
