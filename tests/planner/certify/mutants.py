"""Training plans with one fault each, and what the certifier has to say of it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

from headway.core.device_mesh import DeviceMesh, Submesh
from headway.core.graph import Graph
from headway.core.plan.training import OperatorSharding, TrainingAlternative, TrainingPlan
from headway.core.sharding_spec import Shard, ShardingSpec

Mutate: TypeAlias = Callable[[TrainingPlan, Graph], TrainingPlan]

NAN, INF = float("nan"), float("inf")
QUERY, ATTENTION = "addmm", "_scaled_dot_product_flash_attention_for_cpu"  # both of stage 0


def plan(**changes: Any) -> Mutate:
    return lambda plan, _: replace(plan, **changes)


def stage(number: int, **changes: Any) -> Mutate:
    return lambda plan, _: _with_stage(plan, number, **changes)


def memory(**changes: Any) -> Mutate:
    return lambda plan, _: _with_stage(plan, 0, memory=replace(plan.stages[0].memory, **changes))


def grown(part: str, factor: float) -> Mutate:
    """A part of stage 0's memory is said to be another."""
    return lambda plan, _: _with_stage(
        plan, 0, memory=replace(plan.stages[0].memory, **{part: int(factor * getattr(plan.stages[0].memory, part))})
    )


def mesh(number: int, submesh: tuple[int, int], *shape: int, **changes: Any) -> Mutate:
    return stage(number, mesh=DeviceMesh(Submesh(*submesh), shape), **changes)


def sharding(operator: str, *, number: int = 0, **changes: Any) -> Mutate:
    """Another sharding of an operator of a stage."""
    return edited(
        "shardings",
        lambda all_: [replace(each, **changes) if each.operator == operator else each for each in all_],
        number,
    )


def edited(field: str, edit: Callable[[list[Any]], list[Any]], number: int = 0) -> Mutate:
    """A stage's operators, shardings, parameters or received tensors are others."""
    return lambda plan, _: _with_stage(plan, number, **{field: tuple(edit(list(getattr(plan.stages[number], field))))})


def moved(operator: str, source: int, target: int) -> Mutate:
    """An operator is in another stage, at its place in the graph."""

    def mutate(plan: TrainingPlan, graph: Graph) -> TrainingPlan:
        order = [each.name for each in graph.operators]
        without = tuple(name for name in plan.stages[source].operators if name != operator)
        with_it = tuple(sorted((*plan.stages[target].operators, operator), key=order.index))
        return _with_stage(_with_stage(plan, source, operators=without), target, operators=with_it)

    return mutate


def swapped_stages(plan: TrainingPlan, _: Graph) -> TrainingPlan:
    first, second = plan.stages
    return replace(
        plan,
        stages=(
            replace(second, first_device=0, in_flight=2, handover_s=0.001),
            replace(first, first_device=4, in_flight=1, handover_s=0.0),
        ),
    )


def first_parameter(**changes: Any) -> Mutate:
    return edited("parameters", lambda all_: [replace(all_[0], **changes), *all_[1:]])


def _with_stage(plan: TrainingPlan, number: int, **changes: Any) -> TrainingPlan:
    stages = list(plan.stages)
    stages[number] = replace(stages[number], **changes)
    return replace(plan, stages=tuple(stages))


def _spec(*dims: int | None) -> ShardingSpec:
    return ShardingSpec(tuple(None if dim is None else Shard(dim) for dim in dims))


MUTANTS: dict[str, tuple[Mutate, str]] = {
    # what the plan says of itself
    "no id": (plan(plan_id=""), "The plan has no plan_id"),
    "no model": (plan(model=""), "The plan has no model"),
    "no method": (plan(method=""), "The plan has no method"),
    "another graph": (plan(graph_hash="other"), "of the graph other, and the model's graph is captured"),
    "another precision": (plan(precision="int8"), "The precision is 'int8'; known are float32"),
    "made at no time": (plan(created_at_s=NAN), "created_at_s is nan"),
    "searched before it began": (plan(search_s=-1.0), "search_s is -1.0"),
    "an infinite error": (plan(relative_error=INF), "relative_error is inf"),
    "no batch": (plan(batch=0), "The batch is 0, in 4 micro-batches"),
    "micro-batches that do not divide": (plan(num_micro_batches=5), "5 micro-batches do not divide the batch of 32"),
    "micro-batches of another size": (plan(num_micro_batches=8), "8 micro-batches of 8 make 64, and the batch is 32"),
    "twice the work": (lambda p, _: replace(p, flops=2 * p.flops), "operations an iteration, and the graph has"),
    "a nameless alternative": (plan(alternatives=(TrainingAlternative(name=""),)), "Alternative 0 has no name"),
    "an alternative in no time": (
        plan(alternatives=(TrainingAlternative(name="ZeRO-2", iteration_s=0.0),)),
        "Alternative 'ZeRO-2' takes 0.0 s",
    ),
    # operators and stages
    "no stages": (plan(stages=()), "The plan has no stages"),
    "an operator is missing": (
        edited("operators", lambda names: [name for name in names if name != QUERY]),
        "Operator 'addmm' is in no stage",
    ),
    "an operator is there twice": (
        edited("operators", lambda names: [names[0], *names]),
        "Operator 'arange' is there 2 times, in stages 0, 0",
    ),
    "an operator is in both stages": (
        edited("operators", lambda names: [QUERY, *names], 1),
        "Operator 'addmm' is there 2 times, in stages 0, 1",
    ),
    "an unknown operator": (
        edited("operators", lambda names: [*names, "holiday"]),
        "Stage 0 has an operator 'holiday', which the graph does not have",
    ),
    "a stage without operators": (stage(1, operators=()), "Stage 1 has no operators"),
    "operators in another order": (
        edited("operators", lambda names: [names[1], names[0], *names[2:]]),
        "Stage 0 has operator 'arange' behind one that comes later",
    ),
    "a backward operator apart from its forward one": (
        moved("mm_25", 0, 1),
        "Backward operator 'mm_25' is in stage 1, and its forward operator 'addmm' in stage 0",
    ),
    "stages the other way round": (
        swapped_stages,
        "Forward operator 'native_layer_norm_2' of stage 0 reads 'add_2', which the later stage 1 makes",
    ),
    "a stage that is not convex": (moved(QUERY, 0, 1), "a path leaves stage 0 at 'native_layer_norm' and comes back"),
    "a backward pass that comes too early": (
        moved("add_5", 1, 0),
        "reads 'add_5' of stage 0, whose backward pass comes later",
    ),
    # devices
    "devices that both have": (stage(1, first_device=0), "Stages 0 and 1 both have device 0"),
    "devices outside of the cluster": (
        stage(1, first_device=8),
        "Stage 1: devices 8 to 11 are not all in node group 0, which has devices 0 to 7",
    ),
    "devices before the first": (stage(0, first_device=-4), "Stage 0: devices -4 to -1 are not all in node group 0"),
    "an unknown node group": (stage(1, group=1), "Stage 1 is in node group 1, and there are 1"),
    "three devices of a node": (mesh(0, (1, 3), 3, 1), "Stage 0: the submesh 1x3 is neither 1, 2, 4, ... devices"),
    "halves of two nodes": (mesh(0, (2, 2), 2, 2), "Stage 0: the submesh 2x2 is neither"),
    "devices of two nodes": (
        mesh(1, (1, 2), 2, 1, first_device=3),
        "Stage 1: devices 3 to 4 are in two nodes, and the submesh 1x2 in one",
    ),
    "a node that begins in another": (
        mesh(1, (1, 4), 4, 1, first_device=2),
        "Stage 1: the submesh 1x4 has whole nodes, and device 2 is not the first of its node",
    ),
    "a logical mesh of more devices": (
        mesh(0, (1, 4), 2, 4),
        "Stage 0: the logical mesh 2x4 has 8 devices, and the submesh 1x4 4",
    ),
    "an axis of no devices": (mesh(0, (1, 4), 0, 4), "Stage 0: the mesh has the shape 0x4"),
    "three axes": (mesh(0, (1, 4), 2, 2, 1), "Stage 0: the mesh has the shape 2x2x1; it has one or two axes"),
    "a submesh of no nodes": (mesh(0, (0, 4), 2, 2), "Stage 0: the submesh is 0x4"),
    # micro-batches and times
    "too few in flight": (stage(0, in_flight=1), "Stage 0: 1 micro-batches are in flight, and 1F1B needs 2"),
    "more in flight than there are": (stage(1, in_flight=5), "Stage 1: 5 micro-batches are in flight, and there are 4"),
    "a forward pass of no number": (stage(0, forward_s=NAN), "Stage 0: forward_s is nan"),
    "a backward pass in no time": (stage(1, backward_s=0.0), "Stage 1: backward_s is 0.0"),
    "a handover back in time": (stage(0, handover_s=-1e-3), "Stage 0: handover_s is -0.001"),
    "endless synchronisation": (stage(0, once_s=INF), "Stage 0: once_s is inf"),
    "a last stage that hands over": (stage(1, handover_s=0.1), "Stage 1 is the last one, and hands over in 0.1 s"),
    "an iteration of no number": (plan(iteration_s=NAN), "The iteration takes nan s"),
    "an iteration in no time": (plan(iteration_s=0.0), "The iteration takes 0.0 s"),
    "an iteration shorter than its slowest stage": (
        plan(iteration_s=0.1),
        "by equation 3.2 it takes 0.276 s at least: stage 1 is the slowest with 0.06 s",
    ),
    "an iteration without what happens once": (plan(iteration_s=0.271), "takes 0.271 s, and by equation 3.2 it takes"),
    # shardings
    "a sharding is missing": (edited("shardings", lambda all_: all_[1:]), "Stage 0 has shardings of all but 'arange'"),
    "a sharding is there twice": (
        edited("shardings", lambda all_: [all_[0], *all_]),
        "Stage 0 has shardings of 'arange' 2 times",
    ),
    "a sharding of another stage": (
        edited("shardings", lambda all_: [*all_, OperatorSharding(operator="mm", splits=("", ""))]),
        "Stage 0 has shardings of 'mm', which is none of its operators",
    ),
    "shardings in another order": (
        edited("shardings", lambda all_: all_[::-1]),
        "Stage 0 has shardings of its operators in another order",
    ),
    "a split over too few axes": (
        sharding(QUERY, splits=("m0",)),
        "Stage 0: operator 'addmm' is split over 1 axes, and the mesh has 2",
    ),
    "a split of no loop": (
        sharding(QUERY, splits=("z", "")),
        "Stage 0: operator 'addmm' splits loop 'z', and has n, m0, m1, k",
    ),
    "a split that does not divide": (
        sharding("stack", splits=("d0", ""), number=1),
        "Stage 1: operator 'stack' splits loop 'd0' of 1 into 4 parts, which does not divide",
    ),
    "a split of what has to be whole": (
        sharding(ATTENTION, splits=("k", "")),
        f"Stage 0: operator '{ATTENTION}' splits loop 'k', along which '{ATTENTION}.0' needs all elements at once",
    ),
    "a result over too few axes": (
        sharding(QUERY, result=_spec(0)),
        "Stage 0: tensor 'addmm' is sharded over 1 axes, and the mesh has 2",
    ),
    "a result along no dim": (
        sharding(QUERY, result=_spec(2, None)),
        "Stage 0: tensor 'addmm' is sharded along dim 2, and has 2 dims",
    ),
    "a result that does not divide": (
        sharding(QUERY, result=ShardingSpec((Shard(0, outer=3), None))),
        "Stage 0: tensor 'addmm' has 128 along dim 0, which 6 parts do not divide",
    ),
    "parts of a result that cross": (
        sharding(QUERY, result=_spec(0, 0)),
        "Stage 0: tensor 'addmm' is S01R, and the splits of operator 'addmm' leave it S01'R along mesh axis 1",
    ),
    "a result otherwise than it is made": (
        sharding(QUERY, result=_spec(None, None)),
        "Stage 0: tensor 'addmm' is RR, and the splits of operator 'addmm' leave it S01'R along mesh axis 0",
    ),
    "a tensor that is not received": (
        edited("received", lambda all_: all_[1:], 1),
        "Stage 1: it reads 'add_2' of another stage, and does not receive it",
    ),
    "a tensor that nobody reads": (
        edited("received", lambda all_: [*all_, replace(all_[0], tensor="gelu")], 1),
        "Stage 1: it receives 'gelu', which no operator of it reads from another stage",
    ),
    "a tensor that is received twice": (
        edited("received", lambda all_: [all_[0], *all_], 1),
        "Stage 1: it receives 'add_2' 2 times",
    ),
    "a received tensor that does not divide": (
        edited("received", lambda all_: [replace(all_[0], spec=ShardingSpec((Shard(0, outer=3), None))), *all_[1:]], 1),
        "Stage 1: tensor 'add_2', which it receives, has 8 along dim 0, which 12 parts do not divide",
    ),
    # parameters and layers
    "a parameter is missing": (
        edited("parameters", lambda all_: all_[1:]),
        "Stage 0: it reads parameter 'embedding.tokens.weight', and does not hold it",
    ),
    "a parameter is there twice": (
        edited("parameters", lambda all_: [all_[0], *all_]),
        "Stage 0: it holds parameter 'embedding.tokens.weight' 2 times",
    ),
    "a parameter of another stage": (
        edited("parameters", lambda all_: [*all_, replace(all_[0], parameter="norm.weight")]),
        "Stage 0: it holds parameter 'norm.weight', which no operator of it reads",
    ),
    "an unknown ZeRO stage": (first_parameter(zero_stage=4), "'embedding.tokens.weight' has ZeRO stage 4"),
    "a parameter that does not divide": (
        first_parameter(spec=ShardingSpec((Shard(1, outer=5), None))),
        "Stage 0: parameter 'embedding.tokens.weight' has 32 along dim 1, which 10 parts do not divide",
    ),
    "a parameter that nobody reads so": (
        first_parameter(spec=_spec(0, 1)),
        "Stage 0: parameter 'embedding.tokens.weight' is S0S1, and its operators read it S1R",
    ),
    "recomputation without layers": (stage(0, recomputes=True), "Stage 0: it recomputes, and has no layers"),
    "layers of too few operators": (
        stage(0, recomputes=True, layers=(8, 7)),
        "Stage 0: its layers have 8, 7 operators, and its forward pass 16",
    ),
    # memory
    "weights that are too light": (grown("weights_bytes", 0.5), "Stage 0: the plan says .* of weights on each device"),
    "gradients that are too light": (grown("gradients_bytes", 0.0), "Stage 0: the plan says 0 B of gradients"),
    "a light optimizer": (grown("optimizer_bytes", 0.9), "Stage 0: the plan says .* of optimizer"),
    "activations of one micro-batch": (grown("activations_bytes", 0.5), "Stage 0: the plan says .* of activations"),
    "no workspace": (memory(workspace_bytes=0), "Stage 0: the plan says 0 B of workspace"),
    "memory below nothing": (memory(weights_bytes=-1), "Stage 0 says of its memory weights -1"),
    "more in flight than memory is said": (stage(0, in_flight=4), "Stage 0: the plan says .* of activations"),
    "ZeRO that nobody counted": (
        edited("parameters", lambda all_: [replace(each, zero_stage=3) for each in all_]),
        "Stage 0: the plan says .* of optimizer on each device, and it is",
    ),
    "half the bytes": (plan(precision="bfloat16"), "Stage 0: the plan says .* of weights on each device"),
    "recomputation that nobody counted": (
        stage(0, recomputes=True, layers=(8, 8)),
        "Stage 0: the plan says .* of activations",
    ),
}
