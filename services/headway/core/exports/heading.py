"""The comments at the beginning of a file that another tool reads. Pure."""

from collections.abc import Iterator, Sequence

from headway.core.plan.training import TrainingPlan


def heading(plan: TrainingPlan, notes: Sequence[str]) -> Iterator[str]:
    """Says which plan it is, how to start it, and in what the file differs from the plan."""
    stages = f"{len(plan.stages)} stage{'s' * (len(plan.stages) > 1)}"
    yield f"# {plan.model} on {plan.cluster.label}, batch {plan.batch}: plan {plan.plan_id} of Headway ({plan.method})."
    yield (
        f"# {stages}, {plan.num_micro_batches} micro-batches, {plan.iteration_s:.4g} s predicted for an iteration, "
        f"{max(stage.memory.total_bytes for stage in plan.stages) / 1e9:.4g} GB at most on a device."
    )
    groups = plan.cluster.groups
    if len(groups) == 1:
        yield f"# Start: torchrun --nnodes {groups[0].num_nodes} --nproc-per-node {groups[0].devices_per_node} ..."
    if notes:
        yield "# It is not the plan in this:"
    yield from (f"# - {note}" for note in notes)
