"""What plans are compared with: ways to train that people use or papers compare with, as smaller search spaces.

All of them are priced by the same costs, and each gets the best that its space has: meshes, micro-batches, and whether
stages recompute. Pure.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from headway.core.device_mesh import logical_shapes, submeshes
from headway.core.training_cluster import TrainingCluster
from headway.planner.intra.loop_roles import LoopRole
from headway.planner.intra.options import AxisRole
from headway.planner.intra.training_graph import TrainingGraph
from headway.planner.training.problem import TrainingProblem
from headway.planner.training.space import SearchSpace, StageSize

_DATA = (AxisRole.DATA, AxisRole.DATA)
_MEGATRON = (AxisRole.DATA, AxisRole.MODEL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """Attributes:
    name: as `--method` takes it.
    what: in words.
    space: on a cluster.
    unsplit: what it differs by in that it isn't split; it is told of where the model has such loops. None: of all.
    """

    name: str
    what: str
    space: Callable[[TrainingCluster], SearchSpace]
    unsplit: LoopRole | None = None

    def differs(self, training: TrainingGraph) -> bool:
        """Whether it can differ from the full search for a model."""
        return self.unsplit is None or any(self.unsplit in roles.values() for roles in training.loop_roles.values())


def narrowed(problem: TrainingProblem, baseline: Baseline) -> TrainingProblem:
    """The problem of finding the best plan of a baseline."""
    space = baseline.space(problem.cluster)
    return replace(problem, space=replace(space, recomputes=problem.space.recomputes))


def _data_parallel(zero_stage: int) -> Callable[[TrainingCluster], SearchSpace]:
    def space(cluster: TrainingCluster) -> SearchSpace:
        shapes = ((1, cluster.num_devices),)
        return SearchSpace(axis_roles=_DATA, mesh_shapes=shapes, zero_stages=(zero_stage,), stage_size=StageSize.ALL)

    return space


def _megatron(cluster: TrainingCluster) -> SearchSpace:
    """Tensor parallelism inside nodes, data parallelism over the rest of a stage."""
    shapes = tuple(
        shape
        for nodes in cluster.groups
        for submesh in submeshes(nodes)
        if nodes.num_devices % submesh.num_devices == 0
        for shape in logical_shapes(submesh)
        if shape[1] <= nodes.devices_per_node
    )
    return SearchSpace(axis_roles=_MEGATRON, mesh_shapes=shapes, zero_stages=(0,), equal_layers=True, equal_meshes=True)


def _pipeline_and_data(cluster: TrainingCluster) -> SearchSpace:
    return SearchSpace(axis_roles=_DATA, mesh_shapes=tuple(_flat_shapes(cluster)), zero_stages=(0,))


def _heuristic(cluster: TrainingCluster) -> SearchSpace:
    shapes = ((1, cluster.num_devices),)
    return SearchSpace(by_largest_dim=True, mesh_shapes=shapes, zero_stages=(0,), stage_size=StageSize.ALL)


def _flat_shapes(cluster: TrainingCluster) -> Iterator[tuple[int, int]]:
    for nodes in cluster.groups:
        for submesh in submeshes(nodes):
            yield (1, submesh.num_devices)


def _without(role: LoopRole, what: str) -> Baseline:
    return Baseline(
        name=f"no-{role}-parallel",
        what=what,
        space=lambda _: SearchSpace(unsplit=frozenset({role})),
        unsplit=role,
    )


_ALL = (
    Baseline(name="data-parallel", what="every device has the whole model", space=_data_parallel(0)),
    Baseline(
        name="zero-2", what="data parallelism, with sharded gradients and optimizer state", space=_data_parallel(2)
    ),
    Baseline(name="zero-3", what="data parallelism, with all states sharded", space=_data_parallel(3)),
    Baseline(
        name="megatron",
        what="equal stages; in each, tensor parallelism inside nodes and data parallelism: the best of the grid",
        space=_megatron,
    ),
    Baseline(name="intra-only", what="one stage", space=lambda _: SearchSpace(stage_size=StageSize.ALL)),
    Baseline(
        name="inter-only", what="stages of one device each", space=lambda _: SearchSpace(stage_size=StageSize.ONE)
    ),
    Baseline(name="pp-dp", what="stages, each data parallel", space=_pipeline_and_data),
    Baseline(
        name="equal-operator",
        what="layers of equally many operators",
        space=lambda _: SearchSpace(equal_operators=True),
    ),
    Baseline(name="equal-layer", what="stages of equally many layers", space=lambda _: SearchSpace(equal_layers=True)),
    _without(LoopRole.CONTEXT, "the tokens of an example are on the same devices"),
    _without(LoopRole.EXPERT, "the experts of a layer are on the same devices"),
    Baseline(name="heuristic", what="one stage, parameters sharded along their largest dim", space=_heuristic),
)

BASELINES: Mapping[str, Baseline] = {baseline.name: baseline for baseline in _ALL}
