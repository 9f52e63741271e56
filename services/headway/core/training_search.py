"""A search for a training plan as a document."""

from dataclasses import dataclass, field

from headway.core.catalogue.device import Device
from headway.core.training_cluster import TrainingCluster
from headway.core.training_layout import TrainingLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSearch:
    """Attributes:
    model: as the user named it.
    devices: of the cluster's groups, in order.
    num_layers: that operators are clustered into; None for as many as the model repeats.
    micro_batches: numbers of micro-batches to try; empty for all that make sense.
    method: 'auto', 'alpa', 'graphpipe', or the name of a baseline.
    explains: whether other ways to train the model are priced too, and what would change the choice.
    layout: the user's own plan, to be priced instead of searching one.
    files: the captured graph under `GRAPH`, in base64.
    """

    model: str
    batch: int
    cluster: TrainingCluster
    devices: tuple[Device, ...]
    precision: str
    num_layers: int | None = None
    micro_batches: tuple[int, ...] = ()
    method: str = "auto"
    explains: bool = False
    layout: TrainingLayout | None = None
    files: dict[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return f"{self.model} on {self.cluster.label}, batch {self.batch}"


GRAPH = "graph"
