"""A search for a training plan as a document."""

from dataclasses import dataclass, field

from headway.core.catalogue.device import Device
from headway.core.errors import InvalidArgumentError
from headway.core.hardware.profile import HardwareProfile
from headway.core.operator_seconds import OperatorSeconds
from headway.core.training_cluster import TrainingCluster
from headway.core.training_layout import TrainingLayout

METHODS = (
    "auto",
    "alpa",
    "graphpipe",
    "terapipe",
    "data-parallel",
    "zero-2",
    "zero-3",
    "megatron",
    "intra-only",
    "inter-only",
    "pp-dp",
    "equal-operator",
    "equal-layer",
    "no-context-parallel",
    "no-expert-parallel",
    "heuristic",
)
"""The best of all; Alpa's, GraphPipe's and TeraPipe's searches; and the baselines, which have less to choose from."""

SCHEDULES = ("1f1b", "gpipe", "zb-h1", "zb-h2", "tessel", "auto")
"""Published schedules, the search for one, and the fastest of all."""
TWO_RUNS = ("interleaved-1f1b", "zb-v", "dualpipe-v", "v-half", "v-min")
"""Schedules that plans cannot have: they have two runs of layers on each device."""


SOLVERS = ("highs", "cbc")
"""Of the integer programs with which the stages of a plan are solved once more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSearch:
    """Attributes:
    model: as the user named it.
    devices: of the cluster's groups, in order.
    num_layers: that operators are clustered into; None for as many as the model repeats.
    micro_batches: numbers of micro-batches to try; empty for all that make sense.
    method: one of `METHODS`.
    schedule: one of `SCHEDULES`.
    explains: whether other ways to train the model are priced too, and what would change the choice.
    hardware: measured times of operators; None where those of the catalogue's devices count.
    measured: what the graph's own operators were measured to take, where that counts before both.
    layout: the user's own plan, to be priced instead of searching one.
    solver: of integer programs, one of `SOLVERS`.
    processes: that try numbers of micro-batches at once; None for one, or for as many as a Ray cluster has cores.
    ray: address of a Ray cluster, which the planner sets; empty for none.
    files: the captured graph under `GRAPH`, in base64.
    """

    model: str
    batch: int
    cluster: TrainingCluster
    devices: tuple[Device, ...]
    precision: str
    num_layers: int | None = None
    micro_batches: tuple[int, ...] = ()
    method: str = METHODS[0]
    schedule: str = SCHEDULES[0]
    explains: bool = False
    hardware: HardwareProfile | None = None
    measured: OperatorSeconds | None = None
    layout: TrainingLayout | None = None
    solver: str = SOLVERS[0]
    processes: int | None = None
    ray: str = ""
    files: dict[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return f"{self.model} on {self.cluster.label}, batch {self.batch}"


def check_method(name: str) -> None:
    """Raises InvalidArgumentError where there is no such method."""
    if name not in METHODS:
        raise InvalidArgumentError(
            f"There is no method '{name}'.", hint=f"There are {', '.join(METHODS)}.", field="method"
        )


def check_schedule(name: str) -> None:
    """Raises InvalidArgumentError where there is no such schedule."""
    if name in TWO_RUNS:
        raise InvalidArgumentError(
            f"{name} has several runs of layers on each device, and plans have one.",
            hint="`headway plan train --explain` tells what it would take beside the plan's own schedule.",
            field="schedule",
        )
    if name not in SCHEDULES:
        raise InvalidArgumentError(
            f"There is no schedule '{name}'.", hint=f"There are {', '.join(SCHEDULES)}.", field="schedule"
        )


def check_solver(name: str) -> None:
    """Raises InvalidArgumentError where there is no such solver."""
    if name not in SOLVERS:
        raise InvalidArgumentError(
            f"There is no solver '{name}'.", hint=f"There are {', '.join(SOLVERS)}.", field="solver"
        )


GRAPH = "graph"
