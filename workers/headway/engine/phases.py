"""Measures how long requests wait, prefill and decode, with vLLM's boundaries between the three."""

from typing import Protocol


class PhaseListener(Protocol):
    """Hears, in the engine's thread, of each sequence (of each search, with beams). Times are in seconds."""

    def observe_first_token(self, *, queue_s: float, prefill_s: float) -> None:
        """Records that a request got its first token on this worker.

        Args:
            queue_s: seconds from its arrival to its first step.
            prefill_s: seconds from its first step to its first token; preemptions on the way count.
        """

    def observe_end(self, *, decode_s: float) -> None:
        """Records that a request ended, `decode_s` seconds after its first token."""
