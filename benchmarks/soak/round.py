"""One engine in a pool that is too small, kept full for a while, then emptied and searched for leaks."""

import random
import time
from collections import Counter
from dataclasses import dataclass, field

from benchmarks.soak.traffic import Group, Traffic
from headway.core.request import SequenceOutput
from headway.engine.config import EngineConfig
from headway.engine.engine import Engine
from headway.runner.model_runner import ModelRunner

MAX_UNFINISHED = 48
ARRIVAL_CHANCE = 0.4  # of each step
CANCEL_CHANCE = 0.04
PIN_CHANCE = 0.01
STEPS_PER_CHECK = 8
PIN = "soak"

Answer = tuple[tuple[int, ...], ...]
"""The tokens of a sequence, or those of each hypothesis of a beam search."""


@dataclass(slots=True)
class Tally:
    """What rounds have seen.

    Attributes:
        counts: requests by kind, and events.
        answered: groups that ended by themselves, and the answers of their sequences by request id.
    """

    counts: Counter[str] = field(default_factory=Counter)
    answered: list[tuple[Group, dict[str, Answer]]] = field(default_factory=list)


class Round:
    """An engine with its traffic. Its asserts are what the soak is for."""

    def __init__(self, config: EngineConfig, *, runner: ModelRunner, seed: int, tally: Tally) -> None:
        self._engine = Engine(config, runner=runner, clock=time.perf_counter)
        self._draw = random.Random(seed)
        self._traffic = Traffic(vocab_size=config.vocab_size, seed=seed)
        self._tally = tally
        self._groups: dict[str, Group] = {}  # of every unfinished sequence
        self._tokens: dict[str, list[int]] = {}
        self._answers: dict[int, dict[str, Answer]] = {}  # by the identity of the group

    def run(self, *, seconds: float) -> None:
        """Keep the engine busy, then let it finish; raises AssertionError if anything is wrong or left."""
        end_s = time.perf_counter() + seconds
        num_steps = 0
        while time.perf_counter() < end_s or self._engine.has_work:
            if time.perf_counter() < end_s:
                self._disturb()
            for output in self._engine.step():
                self._take(output)
            num_steps += 1
            if num_steps % STEPS_PER_CHECK == 0:
                self._engine.check_integrity()
        self._engine.unpin(PIN)
        self._check_empty()

    def _disturb(self) -> None:
        """Maybe a request comes, one is cancelled, a prefix is pinned or unpinned."""
        if len(self._groups) < MAX_UNFINISHED and self._draw.random() < ARRIVAL_CHANCE:
            self._submit(self._traffic.group())
        if self._groups and self._draw.random() < CANCEL_CHANCE:
            request_id = self._draw.choice(list(self._groups))
            assert self._engine.cancel(request_id)
            self._answers.pop(id(self._groups.pop(request_id)), None)
            del self._tokens[request_id]
            self._tally.counts["cancelled"] += 1
        if self._engine.config.enable_prefix_cache and self._draw.random() < PIN_CHANCE:
            if not self._engine.unpin(PIN):
                self._engine.pin(PIN, self._draw.choice(self._traffic.prefixes))
            self._tally.counts["pinned or unpinned"] += 1

    def _submit(self, group: Group) -> None:
        self._engine.submit_group(group.requests)
        self._tally.counts[group.kind] += 1
        self._answers[id(group)] = {}
        for request in group.requests:
            self._groups[request.request_id] = group
            self._tokens[request.request_id] = []

    def _take(self, output: SequenceOutput) -> None:
        assert output.request_id in self._groups, f"output of {output.request_id}, which has ended"
        assert not output.error, output.error
        self._tokens[output.request_id] += output.token_ids
        if output.finish_reason is None:
            return
        group = self._groups.pop(output.request_id)
        answers = self._answers.get(id(group))
        tokens = tuple(self._tokens.pop(output.request_id))
        if answers is None:
            return  # a sibling was cancelled
        answers[output.request_id] = tuple(each.token_ids for each in output.hypotheses) or (tokens,)
        if len(answers) == len(group.requests):
            self._tally.answered.append((group, self._answers.pop(id(group))))

    def _check_empty(self) -> None:
        self._engine.check_integrity()
        stats, blocks = self._engine.stats(), self._engine.block_stats()
        config = self._engine.config
        assert not self._groups, f"{len(self._groups)} sequences never ended"
        assert stats.num_running == stats.num_waiting == stats.num_swapped == 0
        assert blocks.num_used == blocks.num_pinned == 0, f"{blocks.num_used} blocks leaked on the device"
        assert blocks.num_host_used == 0, f"{blocks.num_host_used} blocks leaked on the host"
        assert blocks.num_cached + blocks.num_free == config.num_blocks
        assert blocks.num_host_cached + blocks.num_host_free == config.num_host_blocks
        counts = self._tally.counts
        counts["steps"] += stats.num_steps
        counts["preempted"] += stats.num_preemptions
        counts["swapped"] += stats.num_swaps
        counts["prefix tokens found"] += stats.num_prefix_hits
        counts["drafts accepted"] += stats.num_accepted_tokens
