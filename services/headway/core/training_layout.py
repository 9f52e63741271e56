"""A training plan of the user's: which layers and devices each stage has, and what is decided about its shardings."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSplit:
    """Attributes:
    operator: its name in the graph.
    loops: for each mesh axis the loop that it splits; '' for none.
    place: file, line and field, for faults that are found later.
    """

    operator: str
    loops: tuple[str, ...]
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutStage:
    """One stage. What is left open is chosen as well as it can be.

    Attributes:
        layers: its first and its last layer, both included; None where modules say so.
        modules: paths of the first and the last module in it; None where layers say so.
        mesh: the logical shape of its devices.
        axes: what each axis may split: 'any', 'data' or 'model'.
        zero_stages: that its parameters may have.
        recomputes: None for either.
        group: of nodes that its devices are in, by its place in the cluster.
        place: file, line and field, for faults that are found later.
    """

    layers: tuple[int, int] | None = None
    modules: tuple[str, str] | None = None
    mesh: tuple[int, int]
    axes: tuple[str, str]
    zero_stages: tuple[int, ...]
    recomputes: bool | None = None
    group: int = 0
    splits: tuple[OperatorSplit, ...]
    place: str

    @property
    def num_devices(self) -> int:
        return self.mesh[0] * self.mesh[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingLayout:
    """Attributes:
    stages: in the order of the model's layers.
    """

    num_micro_batches: int
    stages: tuple[LayoutStage, ...]
    place: str
