"""What another engine's scheduler says of its steps, as the stats that a worker reports. Pure."""

from dataclasses import dataclass, field

from headway.core.request import GenerationRequest
from headway.core.step_work import StepWork
from headway.engine.stats import StepStats


@dataclass(slots=True)
class Live:
    """A sequence that has not ended.

    Attributes:
        num_tokens: of its prompt and outputs so far.
        num_prefilled: of those that it began with, how many steps have computed, as far as that is known.
    """

    request: GenerationRequest
    num_tokens: int
    num_start_tokens: int
    num_prefilled: int = 0
    has_begun: bool = False  # its first token is there


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One iteration of the engine's scheduler.

    Attributes:
        num_prefill_tokens, num_decodes: that it computed.
        num_prefill_pairs: see `StepWork`; None where it is not known whose tokens they were: those of the first that
            came, then.
        num_steps: how many iterations it was, where they cannot be told apart.
        duration_s: since the step before, or since it had something to do.
        kv_usage: share of the blocks that tables name.
        num_prefix_queries, num_prefix_hits: tokens that it looked up and found.
        num_preempted: requests that it preempted.
    """

    num_running: int
    num_waiting: int
    num_prefill_tokens: int
    num_decodes: int
    duration_s: float
    kv_usage: float
    num_prefix_queries: int = 0
    num_prefix_hits: int = 0
    num_preempted: int = 0
    num_prefill_pairs: float | None = None
    num_steps: int = 1


@dataclass(slots=True)
class EngineTotals:
    """The sum of an engine's steps, and the sequences that have not ended."""

    num_blocks: int
    live: dict[str, Live] = field(default_factory=dict)
    _step: Step | None = None
    _work: StepWork = field(default_factory=StepWork)
    _num_queries: int = 0
    _num_hits: int = 0
    _num_preemptions: int = 0
    _num_prefill_tokens: int = 0
    _num_decode_tokens: int = 0

    def begin(self, request: GenerationRequest) -> None:
        if not self.live:
            self._step = None  # it told of others
        num_tokens = len(request.prompt_token_ids) + len(request.output_token_ids)
        self.live[request.request_id] = Live(request, num_tokens, num_tokens)

    def end(self, request_id: str) -> bool:
        """Returns whether it lived."""
        return self.live.pop(request_id, None) is not None

    def note_tokens(self, request_id: str, num_tokens: int) -> None:
        """It has got so many more."""
        live = self.live[request_id]
        live.has_begun = True
        live.num_prefilled = live.num_start_tokens
        live.num_tokens += num_tokens

    def note_step(self, step: Step) -> None:
        num_context_tokens = step.num_steps * self._num_context_tokens if step.num_decodes else 0
        pairs = step.num_prefill_pairs
        self._step = step
        self._work += StepWork(
            num_steps=step.num_steps,
            num_prefill_tokens=step.num_prefill_tokens,
            num_prefill_pairs=self._prefill(step.num_prefill_tokens) if pairs is None else pairs,
            num_decodes=step.num_decodes,
            num_context_tokens=num_context_tokens,
            duration_s=step.duration_s,
        )
        self._num_queries += step.num_prefix_queries
        self._num_hits += step.num_prefix_hits
        self._num_preemptions += step.num_preempted
        self._num_prefill_tokens += step.num_prefill_tokens
        self._num_decode_tokens += step.num_decodes

    def stats(self, *, num_cached_blocks: int, adapters: tuple[str, ...] = ()) -> StepStats:
        """As they are after the latest step; tokens are those computed since the last call.

        Args:
            num_cached_blocks: blocks that the prefix cache knows, in use or not.
            adapters: that are loaded, by key.
        """
        step = self._step
        is_running = bool(self.live) and step is not None
        num_used = round(step.kv_usage * self.num_blocks) if step is not None and is_running else 0
        num_cached = min(num_cached_blocks, self.num_blocks - num_used)
        num_running = min(step.num_running, len(self.live)) if step is not None else 0
        num_prefill, num_decode = self._num_prefill_tokens, self._num_decode_tokens
        self._num_prefill_tokens = self._num_decode_tokens = 0
        return StepStats(
            num_steps=self._work.num_steps,
            num_running=num_running,
            num_waiting=len(self.live) - num_running,
            num_swapped=0,
            num_context_tokens=self._num_context_tokens,
            num_pending_prefill_tokens=sum(
                live.num_start_tokens - live.num_prefilled for live in self.live.values() if not live.has_begun
            ),
            num_preemptions=self._num_preemptions,
            num_swaps=0,
            num_used_blocks=num_used,
            num_cached_blocks=num_cached,
            num_free_blocks=self.num_blocks - num_used - num_cached,
            num_used_host_blocks=0,
            num_prefix_queries=self._num_queries,
            num_prefix_hits=self._num_hits,
            num_prefill_tokens=num_prefill,
            num_decode_tokens=num_decode,
            num_draft_tokens=0,
            num_accepted_tokens=0,
            num_moved_blocks=0,
            duration_s=step.duration_s if step is not None else 0.0,
            work=self._work,
            adapters=adapters,
        )

    @property
    def _num_context_tokens(self) -> int:
        return sum(live.num_tokens for live in self.live.values() if live.has_begun)

    def _prefill(self, num_tokens: int) -> float:
        """Counts prompt tokens for those who wait, the first that came first; returns the pairs that attention saw."""
        pairs = 0.0
        for live in self.live.values():
            if not num_tokens:
                break
            if not live.has_begun:
                taken = min(num_tokens, live.num_start_tokens - live.num_prefilled)
                pairs += taken * (live.num_prefilled + taken / 2)
                live.num_prefilled += taken
                num_tokens -= taken
        return pairs
