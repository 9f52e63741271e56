"""Counts the memory that models take on the devices of a group."""

from collections.abc import Sequence
from enum import StrEnum

from headway.core.cluster import Hardware
from headway.core.engine_kind import EngineKind
from headway.core.generation import CacheMemory, GenerationProfile
from headway.core.stage_profile import StageProfile

RUNTIME_BYTES = {"cpu": 400 * 1024**2, "cuda": 1024**3}
"""That a worker needs whatever it serves, by `Hardware.device`."""
_VLLM_RUNTIME_BYTES = RUNTIME_BYTES | {"cpu": 2 * 1024**3}
"""The same where it computes with vLLM, in two processes; those of a GPU's worker take host memory beside."""


def runtime_bytes_of(hardware: Hardware) -> int:
    """Bytes that a worker needs whatever it serves, with the engine that it has."""
    return (_VLLM_RUNTIME_BYTES if hardware.engine is EngineKind.VLLM else RUNTIME_BYTES)[hardware.device]


class MemoryRule(StrEnum):
    """The rule for what counts as held memory."""

    WEIGHTS = "weights"
    """As AlpaServe's artifact counts."""

    RESERVED = "reserved"
    """Weights and the activations of one request: what a worker reserves, beside its runtime."""


def held_bytes(profile: StageProfile, rule: MemoryRule) -> tuple[int, ...]:
    """Returns the bytes held on each device of every stage. A model that generates counts with blocks for one sequence
    at least, where their size is known.
    """
    if profile.generation is not None:
        memory = profile.generation.memory
        return profile.weight_bytes if memory is None else memory.least_bytes
    if rule is MemoryRule.WEIGHTS:
        return profile.weight_bytes
    activations = profile.smallest_batch.activation_bytes
    return tuple(weight + activation for weight, activation in zip(profile.weight_bytes, activations, strict=True))


def side_by_side(profiles: Sequence[StageProfile], rule: MemoryRule) -> list[GenerationProfile | None]:
    """The models of one group with the blocks that each gets there; None of those that do not generate.

    |<------------------------------- memory_bytes ------------------------------->|
    | answering in one pass | weights, activations, shortest sequence | of each  | the rest, by bytes per token |

    One that generates alone has all that the others leave on each device. Several share what is left on the fullest.
    It is what `planner/serving/co_location.py` does, where profiles say what is there.

    Args:
        profiles: of the group's shape; `memory` is known of those that generate, unless one is alone.
    """
    if len(profiles) == 1:
        return [profiles[0].generation]
    memories = [each.generation.memory if each.generation is not None else None for each in profiles]
    known = [memory for memory in memories if memory is not None]
    taken_bytes = [0] * profiles[0].pp
    for each in profiles:
        if each.generation is None:
            taken_bytes = [sum(parts) for parts in zip(taken_bytes, held_bytes(each, rule), strict=True)]

    def room_bytes(memory: CacheMemory) -> list[int]:
        left = [memory.memory_bytes - taken for taken in taken_bytes]
        if len(known) == 1:
            return left
        spare_bytes = max(0, min(left) - sum(max(each.least_bytes) for each in known))
        part_bytes = spare_bytes * memory.token_bytes // sum(each.token_bytes for each in known)
        return [max(memory.least_bytes) + part_bytes] * len(left)

    return [
        each.generation.with_blocks(memory.num_blocks(room_bytes(memory)))
        if each.generation is not None and memory is not None
        else None
        for each, memory in zip(profiles, memories, strict=True)
    ]
