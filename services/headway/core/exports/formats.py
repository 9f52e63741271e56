"""The tools that plans are written for."""

from collections.abc import Callable
from dataclasses import dataclass

from headway.core.exports.dtensor import dtensor_placements
from headway.core.exports.megatron import megatron_flags
from headway.core.exports.torchtitan import torchtitan_job
from headway.core.graph import Graph
from headway.core.plan.training import TrainingPlan


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
