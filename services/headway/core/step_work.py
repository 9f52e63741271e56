"""The work of engine steps, on which their time depends."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """The work of several steps, summed.

    Attributes:
        num_prefill_tokens: the tokens of all prefill chunks.
        num_prefill_pairs: pairs of a chunk's token and one at or before it, half of those within the chunk: n (c + n /
            2) for
            n tokens after c.
        num_decodes: sequences that computed one token.
        num_context_tokens: the tokens that those had in the cache.
        duration_s: the seconds that the steps took, without copies of blocks.
    """

    num_steps: int = 0
    num_prefill_tokens: int = 0
    num_prefill_pairs: float = 0.0
    num_decodes: int = 0
    num_context_tokens: int = 0
    duration_s: float = 0.0

    def __add__(self, other: "StepWork") -> "StepWork":
        return StepWork(
            num_steps=self.num_steps + other.num_steps,
            num_prefill_tokens=self.num_prefill_tokens + other.num_prefill_tokens,
            num_prefill_pairs=self.num_prefill_pairs + other.num_prefill_pairs,
            num_decodes=self.num_decodes + other.num_decodes,
            num_context_tokens=self.num_context_tokens + other.num_context_tokens,
            duration_s=self.duration_s + other.duration_s,
        )

    def __sub__(self, other: "StepWork") -> "StepWork":
        return StepWork(
            num_steps=self.num_steps - other.num_steps,
            num_prefill_tokens=self.num_prefill_tokens - other.num_prefill_tokens,
            num_prefill_pairs=self.num_prefill_pairs - other.num_prefill_pairs,
            num_decodes=self.num_decodes - other.num_decodes,
            num_context_tokens=self.num_context_tokens - other.num_context_tokens,
            duration_s=self.duration_s - other.duration_s,
        )
