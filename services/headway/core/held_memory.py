"""What models take of the memory of a group's devices."""

from enum import StrEnum

from headway.core.stage_profile import StageProfile

RUNTIME_BYTES = {"cpu": 400 * 1024**2, "cuda": 1024**3}
"""That a worker needs whatever it serves, by `Hardware.device`."""


class MemoryRule(StrEnum):
    """What counts."""

    WEIGHTS = "weights"
    """As AlpaServe's artifact counts."""

    RESERVED = "reserved"
    """Weights and the activations of one request: what a worker reserves, beside its runtime."""


def held_bytes(profile: StageProfile, rule: MemoryRule) -> tuple[int, ...]:
    """On each device of every stage; of a model that generates its weights, whose groups are sized with all else."""
    if rule is MemoryRule.WEIGHTS or profile.generation is not None:
        return profile.weight_bytes
    activations = profile.smallest_batch.activation_bytes
    return tuple(weight + activation for weight, activation in zip(profile.weight_bytes, activations, strict=True))
