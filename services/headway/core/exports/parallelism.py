"""A plan as degrees of parallelism that hold for all stages: all that torchtitan and Megatron-LM know. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import gcd

from headway.core.batch_dims import BatchDims
from headway.core.errors import FailedPreconditionError
from headway.core.exports.decoder import Decoder, block_of, read_decoder
from headway.core.graph import Graph, Operator, OperatorKind, TensorRole
from headway.core.plan.training import TrainingPlan, TrainingStage

_NEGLIGIBLE = 0.01  # of the work: what is split in another way without a word


class Role(StrEnum):
    """What the devices along a mesh axis divide among them."""

    DATA = "examples"
    TENSOR = "parameters"
    CONTEXT = "tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one stage has of a decoder.

    Attributes:
        blocks: their numbers.
        is_first, is_last: whether it has the tables, and the last norm with the product that gives the logits.
    """

    blocks: tuple[int, ...]
    is_first: bool
    is_last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """Attributes:
    decoder: the model.
    parts: one for each stage.
    data, tensor, context: devices along which examples, parameters and tokens are split.
    micro_batch: examples of one micro-batch on each device.
    zero_stage: of all parameters.
    notes: in which this is not the plan, in sentences.
    """

    decoder: Decoder
    parts: tuple[Part, ...]
    data: int
    tensor: int
    context: int
    micro_batch: int
    zero_stage: int
    recomputes: bool
    notes: tuple[str, ...] = ()

    @property
    def num_devices(self) -> int:
        return len(self.parts) * self.data * self.tensor * self.context


def read_parallelism(plan: TrainingPlan, graph: Graph, target: str) -> Parallelism:
    """Finds the degrees that are nearest to a plan.

    Args:
        target: the tool that wants them, for messages.

    Raises:
        FailedPreconditionError: it has none: the model is no decoder, stages run side by side or have different
            numbers of devices, or a stage has no whole block.
    """
    decoder = read_decoder(graph, target)
    _check_stages(plan, target)
    notes: list[str] = []
    degrees = _common([_degrees(stage, number, graph, notes) for number, stage in enumerate(plan.stages)], notes)
    tensor, moved = _fit_tensor(degrees[Role.TENSOR], decoder, target, notes)
    data = degrees[Role.DATA] * moved
    if plan.micro_batch % data:
        raise FailedPreconditionError(
            f"{target} would split each micro-batch of {plan.micro_batch} examples over {data} devices, "
            f"as parameters split over {tensor} at most.",
            hint=f"Plan with micro-batches that {data} divides, or export it with dtensor.",
        )
    zero_stage = max((each.zero_stage for stage in plan.stages for each in stage.parameters), default=0)
    _note_mixed(plan, zero_stage, notes)
    return Parallelism(
        decoder=decoder,
        parts=_parts(plan, graph, target, notes),
        data=data,
        tensor=tensor,
        context=degrees[Role.CONTEXT],
        micro_batch=plan.micro_batch // data,
        zero_stage=zero_stage,
        recomputes=any(stage.recomputes for stage in plan.stages),
        notes=tuple(notes),
    )


def _check_stages(plan: TrainingPlan, target: str) -> None:
    if plan.depth < len(plan.stages):
        raise FailedPreconditionError(
            f"{target} knows chains of stages, and some of the plan's {len(plan.stages)} run side by side.",
            hint="Plan with --method alpa, or export it with dtensor.",
        )
    if plan.slices:
        raise FailedPreconditionError(
            f"{target} passes whole micro-batches through its pipeline, and the plan's are cut into "
            f"{len(plan.slices)} slices of their tokens.",
            hint="Plan with --method alpa, or export it with dtensor.",
        )
    if plan.has_own_sizes:
        raise FailedPreconditionError(
            f"{target} has micro-batches of one size, and the plan's stages have some of their own.",
            hint="Plan with --method alpa, or export it with dtensor.",
        )
    sizes = [stage.mesh.num_devices for stage in plan.stages]
    if len(set(sizes)) > 1:
        raise FailedPreconditionError(
            f"{target} gives every stage as many devices, and the plan's have {', '.join(map(str, sizes))}.",
            hint="Plan with stages of one size, or export it with dtensor.",
        )


def _degrees(stage: TrainingStage, number: int, graph: Graph, notes: list[str]) -> dict[Role, int]:
    """Devices along which the products of a stage are split, by what of them is."""
    degrees = dict.fromkeys(Role, 1)
    work = _work_by_role(stage, graph)
    for axis, size in enumerate(stage.mesh.shape):
        if size == 1:
            continue
        total = sum(work[axis].values())
        role = max(Role, key=lambda each: work[axis][each])
        degrees[role] *= size
        others = total - work[axis][role]
        if others > _NEGLIGIBLE * total:
            notes.append(
                f"Stage {number}: along the mesh axis of {size} devices all work is split by {role.value}; "
                f"the plan splits {others / total:.0%} of it otherwise."
            )
        if role is Role.TENSOR and axis + 1 < len(stage.mesh.shape) and stage.mesh.shape[axis + 1] > 1:
            notes.append(f"Stage {number}: devices that split parameters are neighbours; in the plan they are apart.")
    return degrees


def _work_by_role(stage: TrainingStage, graph: Graph) -> list[Counter[Role | None]]:
    """For each mesh axis the FLOPs of products with parameters, by what splits them; None is nothing."""
    work: list[Counter[Role | None]] = [Counter() for _ in stage.mesh.shape]
    operators = {operator.name: operator for operator in graph.operators}
    along = dict(zip(operators, BatchDims(graph).loops, strict=True))
    parameters = {tensor.name for tensor in graph.tensors if tensor.role is TensorRole.PARAMETER}
    for sharding in stage.shardings:
        operator = operators[sharding.operator]
        if operator.is_backward or operator.kind is not OperatorKind.MATMUL or parameters.isdisjoint(operator.inputs):
            continue
        for axis, loop in enumerate(sharding.splits):
            work[axis][_role(operator, loop, along, parameters)] += operator.flops
    return work


def _role(operator: Operator, loop: str, along: Mapping[str, Mapping[str, int]], parameters: set[str]) -> Role | None:
    if not loop or operator.space is None:
        return None
    if loop in along[operator.name]:
        return Role.DATA
    indexes = any(loop in access.loops for access in operator.space.reads if access.tensor in parameters)
    return Role.TENSOR if indexes else Role.CONTEXT


def _common(degrees: Sequence[dict[Role, int]], notes: list[str]) -> dict[Role, int]:
    """The degrees that most stages have."""
    common = max(degrees, key=lambda each: sum(other == each for other in degrees))
    differing = [str(number) for number, each in enumerate(degrees) if each != common]
    if differing:
        words = " x ".join(f"{size} by {role.value}" for role, size in common.items() if size > 1)
        notes.append(f"All stages are split {words}; in the plan stages {', '.join(differing)} are split otherwise.")
    return common


def _fit_tensor(tensor: int, decoder: Decoder, target: str, notes: list[str]) -> tuple[int, int]:
    """The devices that parameters can be split over, and the factor that is left for examples."""
    fitting = gcd(tensor, decoder.num_kv_heads, decoder.num_heads, decoder.hidden, decoder.inner)
    if fitting < tensor:
        notes.append(
            f"Parameters are split over {fitting} devices, not {tensor}: {target} gives each device whole heads, and "
            f"there are {decoder.num_kv_heads} of keys and values. Examples are split over {tensor // fitting} times "
            "as many."
        )
    return fitting, tensor // fitting


def _note_mixed(plan: TrainingPlan, zero_stage: int, notes: list[str]) -> None:
    others = {each.zero_stage for stage in plan.stages for each in stage.parameters} - {zero_stage}
    if others:
        words = ", ".join(map(str, sorted(others)))
        notes.append(
            f"All parameters are in ZeRO stage {zero_stage}; in the plan some are in {words}: this takes less memory, "
            "and more communication."
        )
    again = [str(number) for number, stage in enumerate(plan.stages) if stage.recomputes]
    if again and len(again) < len(plan.stages):
        notes.append(f"All stages compute their forward pass again; in the plan only stages {', '.join(again)} do.")


def _parts(plan: TrainingPlan, graph: Graph, target: str, notes: list[str]) -> tuple[Part, ...]:
    """The blocks of each stage; one that two stages share goes to the one that has more of its work."""
    blocks: list[list[int]] = [[] for _ in plan.stages]
    for number, owner in sorted(_owners(plan, graph).items()):
        shares = owner.most_common()
        blocks[shares[0][0]].append(number)
        if len(shares) > 1:
            names = " and ".join(str(stage) for stage in sorted(stage for stage, _ in shares))
            notes.append(f"Block {number} is in stage {shares[0][0]} as a whole; the plan cuts it between {names}.")
    last = len(blocks) - 1
    parts = tuple(
        Part(blocks=tuple(held), is_first=stage == 0, is_last=stage == last) for stage, held in enumerate(blocks)
    )
    for stage, part in enumerate(parts):
        if not part.blocks and not part.is_first and not part.is_last:
            raise FailedPreconditionError(
                f"{target} gives stages whole blocks, and stage {stage} of the plan has none.",
                hint="Plan with fewer stages, or export it with dtensor.",
            )
    return parts


def _owners(plan: TrainingPlan, graph: Graph) -> dict[int, Counter[int]]:
    """Each block with the work that each stage has of it."""
    operators = {operator.name: operator for operator in graph.operators}
    owners: dict[int, Counter[int]] = {}
    for number, stage in enumerate(plan.stages):
        for name in stage.operators:
            operator = operators[name]
            block = block_of(operator)
            if block is not None and not operator.is_backward:
                owners.setdefault(block, Counter())[number] += operator.flops + operator.bytes_read
    return owners
