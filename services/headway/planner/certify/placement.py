"""Checks any placement independently: it does not ask how it was found, and shares no code with the search."""

from collections.abc import Iterator

from headway.core.held_memory import held_bytes
from headway.core.placement import GroupShape
from headway.core.placement_problem import PlacementProblem, ServingCluster
from headway.core.plan.placement import PLACEMENT_PLAN_VERSION, PlacementPlan, PredictedAttainment
from headway.core.stage_profile import StageProfile
from headway.core.units import format_bytes


def find_placement_violations(plan: PlacementPlan) -> list[str]:
    """Lists what is wrong with a plan, in sentences; empty for a valid one."""
    if plan.version != PLACEMENT_PLAN_VERSION:
        return [f"The plan is of version {plan.version}; known is {PLACEMENT_PLAN_VERSION}."]
    return [
        *_check_problem(plan.problem),
        *_check_devices(plan),
        *_check_groups(plan),
        *_check_buckets(plan),
        *_check_predictions(plan),
    ]


def _check_problem(problem: PlacementProblem) -> Iterator[str]:
    names = [model.name for model in problem.models]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"Two models are called '{name}'."
    known = {profile.model for profile in problem.profiles}
    devices = [cluster.device for cluster in problem.clusters]
    if len(set(devices)) < len(devices):
        yield f"A kind of device is there twice: {', '.join(devices)}."
    for model in problem.models:
        if model.architecture not in known:
            yield f"'{model.name}' rests on profiles of '{model.architecture}', of which the plan has none."
    for profile in problem.profiles:
        layout = f"profile {profile.profile_id} of '{profile.model}' in {profile.pp}x{profile.op}"
        if profile.hardware not in devices:
            yield f"The {layout} is of {profile.hardware}, and the cluster of {' and '.join(devices)}."
        lengths = {len(profile.weight_bytes), *(len(batch.stage_latency_s) for batch in profile.batches)}
        lengths |= {len(batch.handover_bytes) + 1 for batch in profile.batches if batch.handover_bytes}
        generation = profile.generation
        if generation is not None:
            lengths.add(len(generation.stage_latencies))
            if generation.memory is not None:
                lengths |= {len(generation.memory.fixed_bytes), len(generation.memory.block_bytes)}
        if not (profile.batches or generation) or lengths != {profile.pp}:
            yield f"The {layout} does not have {profile.pp} stages."


def _check_devices(plan: PlacementPlan) -> Iterator[str]:
    for cluster in plan.problem.clusters:
        shapes = [group.shape for group in plan.placement.groups if _cluster_of(plan.problem, group.shape) == cluster]
        yield from _check_cluster(cluster, shapes)
    for number, group in enumerate(plan.placement.groups):
        if _cluster_of(plan.problem, group.shape) is None:
            yield f"Group {number} is {group.shape}, and there are no such devices."


def _check_cluster(cluster: ServingCluster, shapes: list[GroupShape]) -> Iterator[str]:
    taken = sum(shape.num_devices for shape in shapes)
    if taken > cluster.num_devices:
        yield f"The groups take {taken} devices {cluster.device}, and there are {cluster.num_devices}."
        return
    nodes = _nodes(cluster)
    if sum(nodes) != cluster.num_devices:
        yield f"The nodes of {cluster.device} have {sum(nodes)} devices, and there are {cluster.num_devices}."
    largest = max(shapes, key=lambda shape: shape.num_devices, default=None)
    if largest is not None and largest.num_devices > max(nodes) and cluster.across_nodes is None:
        yield f"A group of {largest.num_devices} devices spans nodes of {max(nodes)}."
        return
    widest = max((shape.op for shape in shapes), default=0)
    if widest > max(nodes):
        yield f"A stage of {widest} devices spans nodes of {max(nodes)}."
        return
    parts = sorted((part for shape in shapes for part in _parts(shape, max(nodes))), reverse=True)
    if not _packs(parts, nodes):
        what = "more than they must" if cluster.across_nodes is not None else "them"
        yield f"The groups do not fit on nodes of {max(nodes)} devices without spanning {what}."


def _nodes(cluster: ServingCluster) -> list[int]:
    full, rest = divmod(cluster.num_devices, cluster.devices_per_node)
    return list(cluster.nodes) or [cluster.devices_per_node] * full + ([rest] if rest else [])


def _parts(shape: GroupShape, node: int) -> Iterator[int]:
    """Number of a group's devices in each node: all in one, or else as many whole stages in each as it has room for."""
    stages = shape.pp
    most = stages if shape.num_devices <= node else node // shape.op
    while stages:
        yield min(stages, most) * shape.op
        stages -= min(stages, most)


def _cluster_of(problem: PlacementProblem, shape: GroupShape) -> ServingCluster | None:
    """The cluster that a group is placed on; a shape without a device is of the only one."""
    if not shape.device and len(problem.clusters) == 1:
        return problem.cluster
    return next((cluster for cluster in problem.clusters if cluster.device == shape.device), None)


def _packs(sizes: list[int], room: list[int]) -> bool:
    """Whether every group has a node, by search: sizes are few and fall, and nodes with equal room are alike."""
    if not sizes:
        return True
    tried: set[int] = set()
    for node, free in enumerate(room):
        if free >= sizes[0] and free not in tried:
            tried.add(free)
            if _packs(sizes[1:], [*room[:node], free - sizes[0], *room[node + 1 :]]):
                return True
    return False


def _check_groups(plan: PlacementPlan) -> Iterator[str]:
    known = {model.name: model.architecture for model in plan.problem.models}
    for number, group in enumerate(plan.placement.groups):
        used_bytes = [0] * group.shape.pp
        for name in group.models:
            if name not in known:
                yield f"Group {number} has '{name}', which is none of the models."
                continue
            held = _held_bytes(plan.problem, known[name], group.shape)
            if held is None:
                yield f"Group {number} is {group.shape}, for which '{name}' has no profile."
                continue
            used_bytes = [sum(parts) for parts in zip(used_bytes, held, strict=True)]
        if len(set(group.models)) < len(group.models):
            yield f"Group {number} has a model twice."
        generating = [model.name for model in plan.problem.models if model.generates and model.name in group.models]
        for name in generating if len(group.models) > 1 else ():
            if _is_without_memory(plan.problem, known[name], group.shape):
                yield f"Group {number} has others beside '{name}', and nothing says how they share its memory."
        cluster = _cluster_of(plan.problem, group.shape)
        if generating and cluster is not None and group.shape.num_devices > max(_nodes(cluster)):
            yield f"Group {number} spans nodes, and '{generating[0]}' generates: no price of that is known."
        budget = cluster.memory_bytes if cluster is not None else 0
        if max(used_bytes) > budget:
            stage = used_bytes.index(max(used_bytes))
            yield (
                f"Group {number} holds {format_bytes(max(used_bytes))} of models on each device of stage {stage}, and "
                f"there are {format_bytes(budget)}."
            )


def _held_bytes(problem: PlacementProblem, architecture: str, shape: GroupShape) -> tuple[int, ...] | None:
    profile = _profile_of(problem, architecture, shape)
    return None if profile is None else held_bytes(profile, problem.memory_rule)


def _is_without_memory(problem: PlacementProblem, architecture: str, shape: GroupShape) -> bool:
    profile = _profile_of(problem, architecture, shape)
    return profile is not None and profile.generation is not None and profile.generation.memory is None


def _profile_of(problem: PlacementProblem, architecture: str, shape: GroupShape) -> StageProfile | None:
    for profile in problem.profiles:
        layout = (profile.model, profile.pp, profile.op)
        if layout == (architecture, shape.pp, shape.op) and shape.device in ("", profile.hardware):
            return profile
    return None


def _check_buckets(plan: PlacementPlan) -> Iterator[str]:
    groups = plan.placement.groups
    owner: dict[str, int] = {}
    for number, bucket in enumerate(plan.buckets):
        for name in bucket.models:
            if owner.setdefault(name, number) != number:
                yield f"'{name}' is in two buckets."
        for group in bucket.groups:
            if not 0 <= group < len(groups):
                yield f"Bucket {number} has a group {group}, which is not there."
            elif not set(groups[group].models) <= set(bucket.models):
                yield f"Group {group} has models that are not in its bucket, {number}."


def _check_predictions(plan: PlacementPlan) -> Iterator[str]:
    for kind, predicted in (("searched", plan.predictions.searched), ("held-out", plan.predictions.held_out)):
        yield from _check_attainment(kind, predicted, num_groups=len(plan.placement.groups))


def _check_attainment(kind: str, predicted: PredictedAttainment, *, num_groups: int) -> Iterator[str]:
    if not 0 <= predicted.attainment <= 1:
        yield f"The attainment on {kind} requests is {predicted.attainment}."
    num_requests = sum(each.num_requests for each in predicted.models)
    met = sum(each.num_requests * each.attainment for each in predicted.models)
    if num_requests and abs(met / num_requests - predicted.attainment) > 1e-6:
        yield f"The models' attainments on {kind} requests do not add up to {predicted.attainment:.4f}."
    if len(predicted.utilisation) != num_groups:
        yield f"The {kind} requests have utilisations of {len(predicted.utilisation)} groups of {num_groups}."
