"""Training plans: how one training step is spread over a cluster, and what that should take."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from headway.core.device_mesh import DeviceMesh
from headway.core.sharding_spec import ShardingSpec
from headway.core.training_cluster import TrainingCluster

TRAINING_PLAN_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSharding:
    """The split of one operator over a stage's mesh.

    Attributes:
        operator: its name in the graph.
        splits: for each mesh axis the loop of the operator's iteration space that it splits; '' where devices along it
            do the same.
        result: how its first result lies in the end, where partial results are not joined on all devices but
            scattered over them; else None.
    """

    operator: str
    splits: tuple[str, ...]
    result: ShardingSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSharding:
    """A tensor as a stage's devices hold it.

    Attributes:
        tensor: its name in the graph.
    """

    tensor: str
    spec: ShardingSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterSharding:
    """A parameter as a stage's devices hold it.

    Attributes:
        parameter: its name in the graph.
        spec: as operators use it.
        zero_stage: what is sharded further along the axes that `spec` replicates: 0 nothing, 1 the optimizer's state, 2
            the gradient too, 3 the parameter too (ZeRO).
    """

    parameter: str
    spec: ShardingSpec
    zero_stage: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """The bytes that each device of a stage holds at its peak.

    Attributes:
        weights_bytes: parameters, and buffers that are no part of them.
        activations_bytes: kept for the backward pass, of all micro-batches in flight.
        workspace_bytes: what one micro-batch needs beside that while it is computed.
    """

    weights_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int
    workspace_bytes: int

    @property
    def total_bytes(self) -> int:
        states = self.weights_bytes + self.gradients_bytes + self.optimizer_bytes
        return states + self.activations_bytes + self.workspace_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceSeconds:
    """What one slice of a micro-batch's tokens takes on a stage, after those before it.

    Attributes:
        forward_s, backward_s: with the communication inside the stage.
        handover_s: to send its activations to the next stage and its gradients back.
    """

    forward_s: float
    backward_s: float
    handover_s: float = 0.0

    @property
    def latency_s(self) -> float:
        return self.forward_s + self.backward_s + self.handover_s


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStage:
    """Operators that share the devices of one mesh.

    Attributes:
        operators: names, forward and backward, in the graph's order.
        mesh: its devices and their logical shape.
        group: index of the node group that they are in.
        first_device: the devices are consecutive from this one on, in the cluster's numbering.
        shardings: of all operators, in order.
        parameters: of all parameters that its operators read.
        received: of all activations and gradients that its operators read and other stages make.
        in_flight: micro-batches whose activations are held at the same time.
        micro_batch: examples of one of its micro-batches, over all its devices; None for as many as the plan's have.
        recomputes: whether the forward pass is computed again before the backward pass, layer by layer, so that only
            the layers' inputs are kept.
        layers: the number of forward operators of each layer, in order; what recomputes has them, others may.
        forward_s, backward_s: of one micro-batch, with the communication inside the stage.
        weight_gradients_s: of `backward_s`, what computes gradients of weights that nothing in the backward pass waits
            for, so that it may run later; 0 where that is not known.
        handover_s: to send a micro-batch's activations to the next stage and its gradients back.
        once_s: once an iteration: synchronising gradients, and the optimizer.
        successors: stages whose forward passes wait for this one's, by their numbers in the plan; None for the next
            one, as in a chain.
        slices: where micro-batches are cut along their tokens, what each slice takes; the stage's own seconds are their
            sums.
    """

    operators: tuple[str, ...]
    mesh: DeviceMesh
    group: int = 0
    first_device: int
    shardings: tuple[OperatorSharding, ...]
    parameters: tuple[ParameterSharding, ...]
    received: tuple[TensorSharding, ...] = ()
    in_flight: int
    micro_batch: int | None = None
    recomputes: bool = False
    layers: tuple[int, ...] = ()
    forward_s: float
    backward_s: float
    weight_gradients_s: float = 0.0
    handover_s: float = 0.0
    once_s: float = 0.0
    successors: tuple[int, ...] | None = None
    slices: tuple[SliceSeconds, ...] = ()
    memory: DeviceMemory

    @property
    def devices(self) -> range:
        """Its devices, in the cluster's numbering."""
        return range(self.first_device, self.first_device + self.mesh.num_devices)

    @property
    def zero_stages(self) -> tuple[int, ...]:
        """The ZeRO stages of its parameters, ascending, each once."""
        return tuple(sorted({each.zero_stage for each in self.parameters}))

    @property
    def latency_s(self) -> float:
        """Of one micro-batch: t of equation 3.2."""
        return self.forward_s + self.backward_s + self.handover_s


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherSchedule:
    """Another schedule of the same stages.

    Attributes:
        iteration_s, bubble: as those of the plan's own; None where it cannot be simulated.
        why_not: in a sentence.
    """

    name: str
    iteration_s: float | None = None
    bubble: float | None = None
    why_not: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSchedule:
    """The order in which stages run the tasks of an iteration, and what that takes when it is simulated.

    Attributes:
        name: of the schedule, such as '1f1b', 'zb-h1' or 'tessel'.
        orders: of each stage, such as 'F0 F1 B0 B1': forward and backward passes by their micro-batch; I and W where
            gradients of inputs and of weights are apart.
        makespan_s: until the last task has ended, with communication between stages beside other tasks.
        iteration_s: with what happens once an iteration.
        period_s: for one more micro-batch, in full swing.
        bubble: the idle share of the busiest stage within the makespan.
        others: schedules that were tried beside it.
    """

    name: str
    orders: tuple[str, ...]
    makespan_s: float
    iteration_s: float
    period_s: float
    bubble: float
    others: tuple[OtherSchedule, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingAlternative:
    """Another way to train the model on the cluster.

    Attributes:
        name: of the method, such as 'data parallel' or 'megatron'.
        iteration_s: None where it has no plan.
        layout: in words, such as '8 stages on 1x8, micro-batch 4'.
        least_s: without a plan, what none of those that were tried can take less than; None where that is not known.
        missing_bytes: what each device lacks at least where it does not fit; else None.
        why_not: in sentences.
    """

    name: str
    iteration_s: float | None = None
    layout: str = ""
    least_s: float | None = None
    missing_bytes: int | None = None
    why_not: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSensitivity:
    """What another cluster or batch would change.

    Attributes:
        what: 'memory' of devices, speed of the 'node link' or the 'network', or 'batch'.
        factor: how much there is of it, of what there is.
        iteration_s: of the best plan then; None where none fits.
        layout: of that plan, in words.
        changes: what is different in its shape, such as 'stages 4 -> 2'; empty where it is the same.
    """

    what: str
    factor: float
    iteration_s: float | None = None
    layout: str = ""
    changes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """One training step of a model on a cluster.

    Attributes:
        model: as the user named it.
        graph_hash: of the captured graph.
        batch: examples of one iteration.
        num_micro_batches: B of equation 3.2; where stages have micro-batches of their own sizes, of the largest ones.
        precision: 'float32', or 'bfloat16' or 'float16' with float32 masters.
        method: that found it, such as 'auto'; 'fixed' where the user gave it.
        slices: tokens of each slice that every micro-batch is cut into (TeraPipe); empty where they are whole.
        flops: of one iteration, forward and backward, without recomputing.
        iteration_s: predicted, by equation 3.2 with what happens once an iteration; with slices by equation 2.5, and
            with micro-batches of several sizes by simulation.
        schedule: of the pipeline, with what it takes by simulation; None in plans that name none.
        relative_error: estimated error of the prediction.
        reasons: why this plan, in sentences.
        sensitivities: what would change the choice, and what would not.
        is_complete: whether the search came to its end; else this is the best until then.
    """

    plan_id: str
    created_at_s: float
    model: str
    graph_hash: str
    cluster: TrainingCluster
    batch: int
    num_micro_batches: int
    slices: tuple[int, ...] = ()
    precision: str
    method: str
    flops: float
    stages: tuple[TrainingStage, ...]
    iteration_s: float
    schedule: PlannedSchedule | None = None
    relative_error: float = 0.0
    search_s: float = 0.0
    search_cpu_s: float = 0.0
    reasons: tuple[str, ...] = ()
    alternatives: tuple[TrainingAlternative, ...] = ()
    sensitivities: tuple[TrainingSensitivity, ...] = ()
    options: dict[str, str] = field(default_factory=dict)
    is_complete: bool = True

    @property
    def micro_batch(self) -> int:
        """Examples of one micro-batch, over all devices of a stage."""
        return self.batch // self.num_micro_batches

    def micro_batch_of(self, stage: TrainingStage) -> int:
        """Examples of one micro-batch of a stage, over all its devices."""
        return self.micro_batch if stage.micro_batch is None else stage.micro_batch

    def num_passes(self, stage: TrainingStage) -> int:
        """Micro-batches of a stage in an iteration."""
        return self.batch // self.micro_batch_of(stage)

    @property
    def has_own_sizes(self) -> bool:
        """Whether stages have micro-batches of different sizes."""
        return len({self.micro_batch_of(stage) for stage in self.stages}) > 1

    @property
    def once_s(self) -> float:
        """What happens once an iteration, on the stage that it takes longest."""
        return max(stage.once_s for stage in self.stages)

    @property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        """Of each stage those whose forward passes wait for its own."""
        return stage_successors(self.stages)

    @property
    def depth(self) -> int:
        """Stages on the longest way of a micro-batch."""
        return round(max(longest_ways(self.successors, [1] * len(self.stages)), default=0))

    @property
    def shared_parameters(self) -> dict[str, tuple[int, ...]]:
        """Parameters that several stages hold, with the stages: their gradients are joined once an iteration."""
        holders: dict[str, list[int]] = {}
        for number, stage in enumerate(self.stages):
            for each in stage.parameters:
                holders.setdefault(each.parameter, []).append(number)
        return {name: tuple(stages) for name, stages in holders.items() if len(stages) > 1}

    @property
    def throughput(self) -> float:
        """Examples per second."""
        return self.batch / self.iteration_s

    @property
    def bubble(self) -> float:
        """The share of the devices' time in which they wait for other stages."""
        devices = sum(stage.mesh.num_devices for stage in self.stages)
        busy_s = sum(
            stage.mesh.num_devices * (self.num_passes(stage) * stage.latency_s + stage.once_s) for stage in self.stages
        )
        return max(0.0, 1 - busy_s / (devices * self.iteration_s))


def stage_successors(stages: Sequence[TrainingStage]) -> tuple[tuple[int, ...], ...]:
    """Of each stage those whose forward passes wait for its own: in a chain the next one."""
    last = len(stages) - 1
    chain = [() if number == last else (number + 1,) for number in range(len(stages))]
    return tuple(next_one if s.successors is None else s.successors for s, next_one in zip(stages, chain, strict=True))


def longest_ways(successors: Sequence[Sequence[int]], values: Sequence[float]) -> list[float]:
    """Of each stage the most that any way from it to the end sums up to, itself included.

    Args:
        successors: of each stage; they come behind it.
        values: of each stage.
    """
    found = list(values)
    for number in reversed(range(len(values))):
        found[number] += max((found[later] for later in successors[number]), default=0)
    return found


def pipeline_s(stages: Sequence[TrainingStage], num_micro_batches: int) -> float:
    """Equation 3.2 for a graph of stages: the longest way of one micro-batch, and for each other one the slowest stage.

    In a chain the longest way is all stages.
    """
    latencies = [stage.latency_s for stage in stages]
    way_s = max(longest_ways(stage_successors(stages), latencies))
    return way_s + (num_micro_batches - 1) * max(latencies)
