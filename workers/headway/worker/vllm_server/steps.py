"""Tells a server's steps apart by when its tokens come. Pure."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenStep:
    """What came together.

    Attributes:
        num_steps: more than one where tokens of several steps of a sequence came at once.
        num_sequences: that got tokens.
        num_prefill_tokens, num_prefill_pairs, num_decodes: see `StepWork`.
        duration_s: since what came before, or since the server had something to do.
    """

    num_steps: int
    num_sequences: int
    num_prefill_tokens: int
    num_prefill_pairs: float
    num_decodes: int
    duration_s: float


@dataclass(slots=True)
class Steps:
    """A step gives each sequence that runs one token, so that the next begins where one gets its second. Prompts that
    took several steps count with the one that gave their first token."""

    _before_s: float = 0.0
    _latest_s: float = 0.0
    _num_tokens: dict[str, int] = field(default_factory=dict)
    _num_firsts: int = 0
    _num_prefill_tokens: int = 0
    _num_prefill_pairs: float = 0.0

    def wake_up(self, now_s: float) -> None:
        """The server had nothing to do until now."""
        self._before_s = now_s

    def note(self, request_id: str, num_tokens: int, *, now_s: float) -> SeenStep | None:
        """Tokens of a sequence came; returns the step before, where they are of the next."""
        seen = self.close() if request_id in self._num_tokens else None
        self._num_tokens[request_id] = num_tokens
        self._latest_s = now_s
        return seen

    def note_prompt(self, num_tokens: int, *, num_cached: int) -> None:
        """The tokens that were just noted are the first after a prompt of so many."""
        num_computed = num_tokens - num_cached
        self._num_firsts += 1
        self._num_prefill_tokens += num_computed
        self._num_prefill_pairs += num_computed * (num_cached + num_computed / 2)

    def close(self) -> SeenStep | None:
        """The step has ended; None where nothing came."""
        if not self._num_tokens:
            return None
        seen = SeenStep(
            num_steps=max(self._num_tokens.values()),
            num_sequences=len(self._num_tokens),
            num_prefill_tokens=self._num_prefill_tokens,
            num_prefill_pairs=self._num_prefill_pairs,
            num_decodes=sum(self._num_tokens.values()) - self._num_firsts,
            duration_s=self._latest_s - self._before_s,
        )
        self._before_s = self._latest_s
        self._num_tokens.clear()
        self._num_firsts = self._num_prefill_tokens = 0
        self._num_prefill_pairs = 0.0
        return seen
