"""The latency model of an engine step: its time as a function of what it computes.

The model is linear in five features (the terms of TeraPipe's eq. 2.9, extended by decodes): a step that prefills
chunks of n_i tokens after c_i context tokens, and decodes B sequences that read C context tokens in all, takes

    base + a * sum(n_i) + b * sum(n_i * (c_i + n_i / 2)) + d * B + e * C     seconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyModel:
    """Coefficients in seconds; `relative_error` is the median held-out error of the fit (0.1 is 10 %).

    Attributes:
        origin: 'measured' on a worker, or 'estimated' from the catalogue of hardware.
    """

    base_s: float
    per_prefill_token_s: float
    per_prefill_pair_s: float
    per_decode_s: float
    per_context_token_s: float
    relative_error: float = 0.0
    origin: str = "measured"

    def part(self, share: float) -> "LatencyModel":
        """Returns the latency of a part of the model; `share` is in [0, 1]."""
        return replace(
            self,
            base_s=share * self.base_s,
            per_prefill_token_s=share * self.per_prefill_token_s,
            per_prefill_pair_s=share * self.per_prefill_pair_s,
            per_decode_s=share * self.per_decode_s,
            per_context_token_s=share * self.per_context_token_s,
        )

    def step_s(self, *, prefill_tokens: int, prefill_context: int = 0, num_decodes: int, context_tokens: int) -> float:
        """Seconds of one step with one prefill chunk (0 tokens for none) and `num_decodes` decodes."""
        pairs = prefill_tokens * (prefill_context + prefill_tokens / 2)
        return (
            self.base_s
            + self.per_prefill_token_s * prefill_tokens
            + self.per_prefill_pair_s * pairs
            + self.per_decode_s * num_decodes
            + self.per_context_token_s * context_tokens
        )

    def one_pass_s(self, lengths: Sequence[int]) -> float:
        """Seconds of a step of a model that does not generate: whole sequences, each for itself."""
        pairs = sum(length * length / 2 for length in lengths)
        return self.base_s + self.per_prefill_token_s * sum(lengths) + self.per_prefill_pair_s * pairs

    def prefill_s(self, num_tokens: int, *, chunk_tokens: int) -> float:
        """Seconds to prefill one prompt alone, in chunks of at most `chunk_tokens`."""
        num_chunks = max(1, -(-num_tokens // chunk_tokens))
        pairs = num_tokens * num_tokens / 2
        return num_chunks * self.base_s + self.per_prefill_token_s * num_tokens + self.per_prefill_pair_s * pairs

    def decode_s(self, *, num_decodes: int, context_tokens: int) -> float:
        """Seconds of a step that only decodes; `context_tokens` summed over the sequences."""
        return self.step_s(prefill_tokens=0, num_decodes=num_decodes, context_tokens=context_tokens)
