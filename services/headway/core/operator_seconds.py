"""What each operator of a captured step was measured to take. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from headway.core.adam import UPDATE_BYTES
from headway.core.model_profile import ModelProfile

UPDATE_TARGET = "aten._fused_adam_.default"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSeconds:
    """Attributes:
    hardware: its name, for people.
    seconds: by the operators' names in the graph.
    update_s: of Adam's update of one number; 0 where it is not known.
    relative_error: the median of the measurements'.
    """

    hardware: str
    seconds: dict[str, float]
    update_s: float = 0.0
    relative_error: float = 0.0


def operator_seconds(profile: ModelProfile, programs: Mapping[str, str]) -> OperatorSeconds:
    """What a profile tells of single operators; those of unknown cost are left out.

    Args:
        programs: by the operators' names what was timed of each, as its content hash.
    """
    costs = {name: profile.cost(program) for name, program in programs.items()}
    known = {name: cost for name, cost in costs.items() if cost.is_known}
    updates = [group for group in profile.subject.operators if group.phase == "optimizer"]
    updates = [group for group in updates if profile.cost(group.program).is_known]
    numbers = sum(group.count * group.bytes_moved for group in updates) / UPDATE_BYTES
    update_s = sum(group.count * profile.cost(group.program).seconds for group in updates)
    threads = profile.hardware.num_threads
    return OperatorSeconds(
        hardware=f"{profile.hardware.label}, {threads} thread{'s' if threads > 1 else ''}",
        seconds={name: cost.seconds for name, cost in known.items()},
        update_s=update_s / numbers if numbers else 0.0,
        relative_error=median(cost.relative_error for cost in known.values()) if known else 0.0,
    )
