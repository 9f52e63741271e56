"""What one step computes, and what comes back: the seam between the engine and whatever runs the model."""

from dataclasses import dataclass
from typing import Protocol

from headway.core.request import TokenLogprobs
from headway.engine.sequence import Sequence


@dataclass(slots=True)
class ScheduledSequence:
    """A sequence's share of a step: tokens [num_computed_tokens, num_computed_tokens + num_new_tokens).

    `samples` is True when the share reaches the sequence's last token, whose logits give the next one; a prefill
    chunk before that samples nothing.
    """

    sequence: Sequence
    num_new_tokens: int
    samples: bool


@dataclass(slots=True)
class StepBatch:
    """Prefill chunks and decodes together; `sequences` keeps the scheduler's order (FCFS)."""

    sequences: list[ScheduledSequence]
    num_tokens: int


@dataclass(slots=True)
class StepResult:
    """One entry per scheduled sequence, in the batch's order.

    Attributes:
        token_ids: the sampled token, or None where nothing was sampled.
        logprobs: of the sampled token, where the sequence asked for them.
        prompt_logprobs: of the prompt tokens that this share completed: the share over positions [a, b) gives the
            entries of tokens a+1..b that belong to the prompt; empty where not asked for.
    """

    token_ids: list[int | None]
    logprobs: list[TokenLogprobs | None]
    prompt_logprobs: list[tuple[TokenLogprobs, ...]]


class Runner(Protocol):
    """Executes batches. It writes keys and values into the blocks that the sequences' block tables name."""

    def execute(self, batch: StepBatch) -> StepResult: ...
