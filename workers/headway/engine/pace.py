"""Keeps steps short for tenants of few sequences while another one has many.

Whoever is in every step waits for all that is in it: where a step takes longer the more it holds, four tokens of one
tenant take as long as four of everybody's. So a tenant floods that has more sequences than the mean of all tenants, by
weight, and beside the others its groups take turns: together they may take as much time as the others' own tokens do.
What they leave is saved up for the next in turn, until it is enough for it. The others' tokens take twice as long as
alone at most, over a few steps, and the one that floods has half of the time at least.

Who sends one short request after the other has none at the engine for most of the time, and the next one would find a
long step under way. So for a second after a tenant's last request steps stay short, though not empty: they hold as much
as takes twice the time of a single token, and one group at least.

Where a step of many tokens takes as long as one of a single token, as on large devices, or where there is one tenant,
nobody waits. A group's prompt is never held up, for nobody is admitted behind it; its time counts all the same.
"""

from collections import Counter
from collections.abc import Callable, Collection

from headway.engine.group import SequenceGroup
from headway.engine.micro_batch import MicroBatch
from headway.engine.request_queues import RequestQueues
from headway.engine.step_times import StepTimes

_LINGER_S = 1.0


class Pace:
    """Knows which groups are to miss the next step."""

    def __init__(self, queues: RequestQueues, *, max_num_prefill_tokens: int) -> None:
        self._queues = queues
        self._max_num_prefill_tokens = max_num_prefill_tokens
        self._times = StepTimes()
        self._tenants: dict[str, tuple[float, float]] = {}  # (weight, when it last had a request, in seconds)
        self._num_turns = 0
        self._num_own = 0  # tokens of the others in the next step
        self._is_bounded = False
        self._saved_s = 0.0
        self._next_s = 0.0  # of the first group that misses the next step

    def observe_step(self, num_tokens: int, duration_s: float) -> None:
        """Notes how long a batch took."""
        self._times.observe(num_tokens, duration_s)

    def held(self, *, now_s: float, can_go_on: Callable[[SequenceGroup], bool]) -> Collection[SequenceGroup]:
        """Returns the running groups that are to miss the next step, so that others have it sooner.

        Args:
            now_s: monotonic seconds.
            can_go_on: whether a group need not wait for what is in flight.
        """
        self._is_bounded = False
        floods = self._floods(now_s)
        if not floods:
            return ()
        self._is_bounded = True
        going = [group for group in self._queues.running if can_go_on(group)]
        self._num_own = sum(self._num_next_tokens(group) for group in going if group.tenant not in floods)
        if self._queues.waiting and (group := self._queues.next_waiting).tenant not in floods:
            self._num_own += min(len(group.leader), self._max_num_prefill_tokens)
        flooding = [group for group in going if group.tenant in floods]
        num_prefill = sum(self._num_next_tokens(group) for group in flooding if group.is_prefilling)
        in_turn = sorted((group for group in flooding if not group.is_prefilling), key=lambda group: group.turn)
        return in_turn[self._num_taken(in_turn, num_tokens=self._num_own + num_prefill) :]

    def settle(self, planned: MicroBatch) -> None:
        """Counts what those who flood have in a batch, and that it was their groups' turn."""
        if not self._is_bounded:
            return
        self._num_turns += 1
        for group in planned.groups:
            group.turn = self._num_turns
        if self._num_own:
            own_s = self._times.predict_s(self._num_own)
            taken_s = self._times.predict_s(max(planned.batch.num_tokens, self._num_own)) - own_s
            self._saved_s = min(self._saved_s + own_s - taken_s, self._next_s)

    def _floods(self, now_s: float) -> set[str]:
        """Returns the tenants that have more sequences than the mean of all, by weight; none where there is one."""
        tenants = self._tenants
        for tenant, weight in self._queues.fair_share.weights.items():
            tenants[tenant] = (weight, now_s)
        if len(tenants) == 1:
            return set()
        for tenant, (_, last_s) in list(tenants.items()):
            if now_s - last_s > _LINGER_S:
                del tenants[tenant]
        counts = Counter[str]()
        for group in self._queues.running:
            counts[group.tenant] += len(group.sequences)
        mean = counts.total() / sum(weight for weight, _ in tenants.values()) if tenants else 0.0
        return {tenant for tenant, (weight, _) in tenants.items() if counts[tenant] > mean * weight}

    def _num_taken(self, in_turn: list[SequenceGroup], *, num_tokens: int) -> int:
        """Returns how many of the groups have their turn in a step that holds `num_tokens` without them."""
        predict_s = self._times.predict_s
        own_s = predict_s(max(self._num_own, 1))
        limit_s = 2 * own_s + (self._saved_s if self._num_own else 0.0)
        for index, group in enumerate(in_turn):
            num_tokens += len(group.scheduled_sequences)
            self._next_s = predict_s(num_tokens) - own_s
            if self._next_s + own_s > limit_s and (index or self._num_own):
                return index
        self._next_s = 0.0
        return len(in_turn)

    def _num_next_tokens(self, group: SequenceGroup) -> int:
        """Returns the tokens that a running group has in the next step, drafts aside."""
        if not group.is_prefilling:
            return len(group.scheduled_sequences)
        return min(group.num_pending_prefill_tokens + 1, self._max_num_prefill_tokens)
