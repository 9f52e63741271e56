"""The input and the result of one engine step: the seam between the engine and whatever runs the model."""

from dataclasses import dataclass, field
from typing import Protocol

from headway.core.request import TokenLogprobs
from headway.core.step_work import StepWork
from headway.engine.sequence import Sequence


@dataclass(slots=True)
class ScheduledSequence:
    """A sequence as it is scheduled in a step: tokens [start, start + num_new_tokens).

    It stays as it is from when the step is started until its result has been booked. In an engine that runs ahead the
    only token can be one that the sequence does not have yet: it is the one that the batch before samples for it.

    Attributes:
        start: how many tokens are computed before the step.
        samples: True when the scheduled sequence reaches the sequence's last known token, whose logits give the next
            one; a prefill chunk before that samples nothing.
        draft_token_ids: guesses of what follows the last known token, computed in the same step, after it; they are
            not in `sequence.token_ids` and count in `num_new_tokens`. Only where `samples`.
        followers: siblings that wait for the end of the shared prompt's prefill; each samples its first token from
            the same logits. Only where `samples`, and never with drafts.
    """

    sequence: Sequence
    num_new_tokens: int
    samples: bool
    draft_token_ids: tuple[int, ...] = ()
    followers: tuple[Sequence, ...] = ()
    start: int = field(init=False)

    def __post_init__(self) -> None:
        self.start = self.sequence.num_computed_tokens

    @property
    def wants_best(self) -> bool:
        """Whether of what it samples nothing but the most likely tokens is wanted."""
        return self.samples and not self.followers and self.sequence.wants_best


@dataclass(slots=True)
class StepBatch:
    """Prefill chunks and decodes together; `sequences` keeps the scheduler's order (FCFS).

    The copies are carried out before the computation, in this order: out, in, within.

    Attributes:
        swap_out: (device block, host block).
        swap_in: (host block, device block).
        block_copies: (source, destination) within the device pool: copy on write.
        has_copied: set by the runner once the copies are carried out. If the step fails before, they are still owed.
    """

    sequences: list[ScheduledSequence]
    num_tokens: int
    swap_out: list[tuple[int, int]] = field(default_factory=list)
    swap_in: list[tuple[int, int]] = field(default_factory=list)
    block_copies: list[tuple[int, int]] = field(default_factory=list)
    has_copied: bool = False

    @property
    def has_work(self) -> bool:
        """Whether there is anything to compute or to copy."""
        return bool(self.sequences) or self.owes_copies

    @property
    def owes_copies(self) -> bool:
        return not self.has_copied and bool(self.swap_out or self.swap_in or self.block_copies)

    def copies_alone(self) -> "StepBatch":
        return StepBatch([], 0, swap_out=self.swap_out, swap_in=self.swap_in, block_copies=self.block_copies)

    def work(self, *, duration_s: float) -> StepWork:
        """Returns what this batch computed, given that its step took `duration_s` seconds. A draft is computed like a
        chunk of a prompt, and counts as one.
        """
        num_prefill_tokens = num_decodes = num_context_tokens = 0
        num_prefill_pairs = 0.0
        for scheduled in self.sequences:
            num_new = scheduled.num_new_tokens
            if num_new == 1:
                num_decodes += 1
                num_context_tokens += scheduled.start
            else:
                num_prefill_tokens += num_new
                num_prefill_pairs += num_new * (scheduled.start + num_new / 2)
        return StepWork(
            num_steps=1,
            num_prefill_tokens=num_prefill_tokens,
            num_prefill_pairs=num_prefill_pairs,
            num_decodes=num_decodes,
            num_context_tokens=num_context_tokens,
            duration_s=duration_s,
        )


@dataclass(slots=True)
class Sample:
    """The tokens that one sequence got from a step. One is made for each token, so it is not frozen: that would take
    three times as long.

    Attributes:
        token_ids: the sampled token; behind accepted drafts, those first. Empty for a beam.
        logprobs: one entry per token, where the sequence asked for them.
        candidates: for a beam, the (token id, natural-log probability) of the best continuations, best first.
        error: why there is no token and the sequence must end; empty if all is well.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()
    candidates: tuple[tuple[int, float], ...] = ()
    error: str = ""


@dataclass(slots=True)
class StepResult:
    """One entry per scheduled sequence, in the batch's order.

    Attributes:
        samples: of the sequence and of each of its followers; () where nothing was sampled.
        prompt_logprobs: of the prompt tokens that this scheduled sequence completed: the scheduled sequence over
            positions [a, b) gives the entries of tokens a+1..b that belong to the prompt; empty where not asked for.
        copy_s: what the copies between the tiers took.
    """

    samples: list[tuple[Sample, ...]]
    prompt_logprobs: list[tuple[TokenLogprobs, ...]]
    copy_s: float = 0.0


class RunnerLostError(Exception):
    """Ranks of the runner are gone, or out of step with each other: it computes nothing any more."""


class Runner(Protocol):
    """Executes batches. It writes keys and values into the blocks that the sequences' block tables name.

    Up to `EngineConfig.num_micro_batches` are under way at once, and one more if the engine runs ahead. Each is
    executed, copies first, as if all that were started before it had been executed: nothing reads or writes a block out
    of this order.
    """

    def start(self, batch: StepBatch) -> None:
        """Takes a batch on. What raises takes nothing on; its copies may be carried out, see `StepBatch.has_copied`.

        Its block tables and the sequences' `num_computed_tokens` are as they should be now, and no later. The scheduled
        sequences themselves and the sequences' tokens do not change before the result is there, but for those that the
        batch before adds when the engine runs ahead.
        """

    def finish(self) -> StepResult:
        """The result of the batch that was started first, which is under way no more, even if this raises.

        Raises:
            RunnerLostError: there will be no results any more, neither of this batch nor of later ones.
        """
