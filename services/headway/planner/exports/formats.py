"""The tools that plans are written for."""

from collections.abc import Callable
from dataclasses import dataclass

from headway.core.graph import Graph
from headway.core.plan.training import TrainingPlan
from headway.planner.exports.dtensor import dtensor_placements
from headway.planner.exports.megatron import megatron_flags
from headway.planner.exports.torchtitan import torchtitan_job


@dataclass(frozen=True, slots=True)
class Format:
    """Attributes:
    write: gives the text of the file.
    suffix: of the file's name.
    """

    write: Callable[[TrainingPlan, Graph], str]
    suffix: str


FORMATS = {
    "torchtitan": Format(torchtitan_job, ".toml"),
    "megatron": Format(megatron_flags, ".sh"),
    "dtensor": Format(dtensor_placements, ".json"),
}
