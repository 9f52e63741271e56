"""What the slots of the KV pool are used for, while requests wait for memory (dissertation 5.3.1, figures 5.2, 5.3)."""

from dataclasses import dataclass, field, fields
from statistics import fmean

from benchmarks.waste.policy import final_tokens
from headway.engine.batch import StepBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """Shares of the pool's slots, and what that amounts to.

    Attributes:
        tokens: hold keys and values.
        reserved: will hold some before their sequence ends.
        internal: given to a sequence that will never fill them.
        external: given to nobody, or lost to rounding a range up to what the allocator can give.
        num_running: sequences that are computed in a step.
    """

    tokens: float
    reserved: float
    internal: float
    external: float
    num_running: float

    @property
    def waste(self) -> float:
        """Reserved and fragmented slots over those that sequences were given."""
        given = self.tokens + self.reserved + self.internal
        return 1 - self.tokens / given


@dataclass(slots=True)
class Meter:
    """Looks at each batch of an engine that shares no blocks.

    Attributes:
        uses: one a step.
    """

    num_slots: int
    block_size: int
    uses: list[Use] = field(default_factory=list)

    def observe(self, batch: StepBatch) -> None:
        num_tokens = num_reserved = num_given = 0
        for share in batch.sequences:
            sequence = share.sequence
            num_computed = sequence.num_computed_tokens + share.num_new_tokens
            num_slots = len(sequence.block_table) * self.block_size
            num_tokens += num_computed
            num_reserved += min(num_slots, final_tokens(sequence)) - num_computed
            num_given += num_slots
        self.uses.append(
            Use(
                tokens=num_tokens / self.num_slots,
                reserved=num_reserved / self.num_slots,
                internal=(num_given - num_tokens - num_reserved) / self.num_slots,
                external=1 - num_given / self.num_slots,
                num_running=len(batch.sequences),
            )
        )

    def mean(self) -> Use:
        """The mean over the steps so far."""
        return Use(**{each.name: fmean(getattr(use, each.name) for use in self.uses) for each in fields(Use)})
