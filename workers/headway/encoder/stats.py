"""The one-pass engine's figures, for metrics and load reports."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderStats:
    """The engine as it stands, and its latest step.

    Attributes:
        num_steps: since the start.
        num_running: requests that the next step works on.
        num_waiting: the others.
        num_pending_tokens: of both, still to be computed.
        num_tokens: computed by the latest step.
        duration_s: of the latest step.
    """

    num_steps: int
    num_running: int
    num_waiting: int
    num_pending_tokens: int
    num_tokens: int
    duration_s: float
