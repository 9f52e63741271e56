"""How long requests wait, are prefilled and decoded, with vLLM's boundaries between the three."""

from typing import Protocol


class PhaseListener(Protocol):
    """Hears, in the engine's thread, of each sequence (of each search, with beams). Times are in seconds."""

    def observe_first_token(self, *, queue_s: float, prefill_s: float) -> None:
        """Its first token here is known.

        Args:
            queue_s: from its arrival to its first step.
            prefill_s: from there on; preemptions on the way count.
        """

    def observe_end(self, *, decode_s: float) -> None:
        """It has ended with its last token, `decode_s` after its first one."""
