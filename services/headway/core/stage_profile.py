"""Stage profiles as AlpaServe and Alpa make them: how long the stages of a pipeline take, and what they hold."""

import hashlib
from dataclasses import dataclass

from headway.core.catalogue.figure import Provenance
from headway.core.generation import GenerationProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class StageBatch:
    """The figures of one batch size.

    Attributes:
        stage_latency_s: the latency of each stage.
        activation_bytes: the bytes of activations on each device of the stage.
        handover_bytes: the bytes that each stage but the last hands to the next; () where that is unknown.
    """

    batch_size: int
    stage_latency_s: tuple[float, ...]
    activation_bytes: tuple[int, ...]
    handover_bytes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StageProfile:
    """A model in `pp` stages of `op` devices each.

    Attributes:
        hardware: name of the device in the catalogue.
        weight_bytes: on each device of the stage.
        batches: of one pass; empty of a model that generates.
        layers_per_stage: () where it is unknown.
        source: where the figures are from, in words.
        relative_error: what the source states, 0 where it states none.
        generation: of a model that generates.
    """

    profile_id: str
    model: str
    hardware: str
    pp: int
    op: int
    weight_bytes: tuple[int, ...]
    batches: tuple[StageBatch, ...]
    layers_per_stage: tuple[int, ...] = ()
    source: str
    provenance: Provenance
    relative_error: float = 0.0
    created_at_s: float
    generation: GenerationProfile | None = None

    @property
    def needs_group(self) -> bool:
        """Whether it generates, and what it takes of the memory beside others is unknown."""
        return self.generation is not None and self.generation.memory is None

    @property
    def smallest_batch(self) -> StageBatch:
        return min(self.batches, key=lambda batch: batch.batch_size)

    @property
    def latency_s(self) -> float:
        """Returns the latency of one pass alone, through all stages; the stages' latencies include the transfers
        between them.
        """
        return sum(self.smallest_batch.stage_latency_s)


def stage_profile_id(model: str, hardware: str, *, pp: int, op: int) -> str:
    """One for each layout of a model on a kind of device: what is imported again replaces what was."""
    return hashlib.sha256(f"stages:{model}:{hardware}:{pp}:{op}".encode()).hexdigest()[:16]
