"""A placement: the models that share each group of devices (AlpaServe, dissertation section 4.4.2)."""

from collections import Counter
from dataclasses import dataclass, field

from headway.core.held_memory import MemoryRule, held_bytes
from headway.core.slo import Slo
from headway.core.stage_profile import StageProfile


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class GroupShape:
    """A group's pipeline of `pp` stages, of `op` devices each.

    Attributes:
        device: their kind, by its name in the catalogue; empty where there is one kind only.
    """

    pp: int
    op: int
    device: str = ""

    @property
    def num_devices(self) -> int:
        return self.pp * self.op

    def __str__(self) -> str:
        return f"{self.pp}x{self.op}{f'@{self.device}' if self.device else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedGroup:
    """Devices that run one model-parallel runtime, and the models that share it.

    Attributes:
        models: names; each once.
    """

    shape: GroupShape
    models: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A model may be on several groups: its replicas."""

    groups: tuple[PlacedGroup, ...]

    @property
    def num_devices(self) -> int:
        return sum(group.shape.num_devices for group in self.groups)

    @property
    def shapes(self) -> str:
        """'4 of 2x1, 1 of 8x1'"""
        counts = Counter(group.shape for group in self.groups)
        return ", ".join(f"{count} of {shape}" for shape, count in sorted(counts.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedModel:
    """A model that is to be placed.

    Attributes:
        profiles: stage latencies of each shape of group that it can run on; shapes are unlike.
        memory_rule: how its memory is counted.
        slo: of first tokens and of the time between tokens, where it generates.
    """

    name: str
    profiles: tuple[StageProfile, ...]
    memory_rule: MemoryRule = MemoryRule.WEIGHTS
    slo: Slo = field(default_factory=Slo)

    @property
    def generates(self) -> bool:
        return any(profile.generation is not None for profile in self.profiles)

    def on(self, shape: GroupShape) -> StageProfile | None:
        """Returns the model's profile on a group of that shape; None where it can't run there."""
        return next((profile for profile in self.profiles if _is_of(profile, shape)), None)

    def needed_bytes(self, shape: GroupShape, memory_bytes: int) -> int | None:
        """Returns how many of `memory_bytes` the model needs on each device, at the fullest stage of a group of that
        shape; None where it can't run there. A model that generates, and of whose memory no more is known than its
        weights, needs all of it.
        """
        profile = self.on(shape)
        if profile is None:
            return None
        held = max(held_bytes(profile, self.memory_rule))
        return max(held, memory_bytes) if profile.needs_group else held


def _is_of(profile: StageProfile, shape: GroupShape) -> bool:
    return (profile.pp, profile.op) == (shape.pp, shape.op) and shape.device in ("", profile.hardware)
