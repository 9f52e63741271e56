"""Checks a serving plan. Every figure is worked out here again, from the model's dimensions."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields

from headway.core.cluster import Hardware
from headway.core.latency import LatencyModel
from headway.core.model import ModelSpec
from headway.core.plan.serving import Assignment, ModelDeployment, Prediction, ServingPlan
from headway.planner.certify.co_location import co_location_violations
from headway.planner.certify.emulation import emulation_violations, profiled_violations
from headway.planner.certify.encoder import encoder_violations
from headway.planner.certify.group import group_violations
from headway.planner.certify.memory import memory_violations, part_of
from headway.planner.certify.roles import role_violations
from headway.planner.certify.terms import role_count_violations, terms_violations


def find_violations(plan: ServingPlan) -> list[str]:
    """Lists the rules that the plan breaks, a sentence each; empty for a valid plan."""
    return [
        *_identity_violations(plan),
        *_coverage_violations(plan),
        *role_violations(plan),
        *co_location_violations(plan),
        *_assignment_violations(plan),
    ]


def _identity_violations(plan: ServingPlan) -> Iterator[str]:
    if not plan.plan_id:
        yield "The plan has no id."
    if not (math.isfinite(plan.created_at_s) and plan.created_at_s >= 0):
        yield f"The plan was created at {plan.created_at_s} s."
    yield from _repeated("model", [model.name for model in plan.models])
    yield from _repeated("worker", [worker.worker_id for worker in plan.workers])
    for assignment in plan.assignments:
        yield from _rank_violations(plan, assignment)
        if not assignment.group_id:
            yield "A group has no name."


def _rank_violations(plan: ServingPlan, assignment: Assignment) -> Iterator[str]:
    """Checks that each worker of a group is there once, or where it has several devices once with each of them."""
    names = [share.worker_id for share in assignment.shares]
    worker = plan.worker(assignment.worker_id)
    num_devices = 1 if worker is None else worker.hardware.num_devices
    if num_devices == 1:
        yield from _repeated("worker of a group", names)
    elif names != [assignment.worker_id] * num_devices:
        yield f"{assignment.worker_id} has {num_devices} devices, and the plan gives it {len(names)} parts."


def _repeated(what: str, names: list[str]) -> Iterator[str]:
    for name, count in Counter(names).items():
        if not name:
            yield f"A {what} has no name."
        elif count > 1:
            yield f"There are {count} {what}s '{name}'."


def _coverage_violations(plan: ServingPlan) -> Iterator[str]:
    if not plan.models:
        yield "The plan serves no model."
    served = Counter(assignment.model for assignment in plan.assignments)
    for model in plan.models:
        if model.name not in served:
            if not model.may_sleep:
                yield f"No worker serves model '{model.name}'."
        elif not plan.placement_id:  # which says itself how many there are
            yield from _replica_violations(model, served[model.name])
            yield from role_count_violations(plan, model)


def _replica_violations(model: ModelDeployment, num_replicas: int) -> Iterator[str]:
    if model.min_replicas is not None and num_replicas < model.min_replicas:
        yield f"{num_replicas} groups serve '{model.name}', which is to have {model.min_replicas} at least."
    if model.max_replicas is not None and num_replicas > model.max_replicas:
        yield f"{num_replicas} groups serve '{model.name}', which is to have {model.max_replicas} at most."


def _assignment_violations(plan: ServingPlan) -> Iterator[str]:
    models = {model.name: model for model in plan.models}
    hardware = {worker.worker_id: worker.hardware for worker in plan.workers}
    pools = {worker.worker_id: worker.pool for worker in plan.workers}
    for assignment in plan.assignments:
        model, worker_id = models.get(assignment.model), assignment.worker_id
        if model is None:
            yield f"{worker_id} serves model '{assignment.model}', which the plan does not have."
            continue
        if missing := [name for name in assignment.worker_ids if name not in hardware]:
            yield f"The plan assigns '{assignment.model}' to worker '{missing[0]}', which it does not have."
            continue
        if others := [name for name in assignment.worker_ids if hardware[name].engine is not model.engine]:
            yield f"'{model.name}' is to run on {model.engine}, and {others[0]} has {hardware[others[0]].engine}."
        yield from terms_violations(assignment, model, pools)
        if unfit := list(_layout_violations(assignment, model, hardware)):
            yield from (f"{assignment.group_id}: {violation}" for violation in unfit)
            continue  # what a rank should hold is not known
        violations = (
            *_kind_violations(assignment, model, hardware),
            *_latency_violations(assignment.prediction.latency),
        )
        yield from (f"{worker_id}: {violation}" for violation in violations)
        if model.spec.encoder is None:
            yield from _memory_violations(assignment, model.spec, hardware)


def _layout_violations(
    assignment: Assignment, model: ModelDeployment, hardware: Mapping[str, Hardware]
) -> Iterator[str]:
    if model.profile:
        yield from profiled_violations(assignment, hardware)
    else:
        yield from group_violations(assignment, model.spec)
    yield from emulation_violations(assignment, model, hardware)


def _kind_violations(assignment: Assignment, model: ModelDeployment, hardware: Mapping[str, Hardware]) -> Iterator[str]:
    """Checks what depends on whether the model generates or is an encoder."""
    if model.spec.encoder is not None:
        yield from encoder_violations(assignment, model, hardware=hardware)
        return
    yield from _limit_violations(assignment)
    yield from _length_violations(assignment, model)
    yield from _prediction_violations(assignment.prediction)


def _memory_violations(assignment: Assignment, spec: ModelSpec, hardware: Mapping[str, Hardware]) -> Iterator[str]:
    """Checks the memory of each worker of the group."""
    for rank, share in enumerate(assignment.shares):
        violations = memory_violations(
            assignment,
            share,
            part_of(assignment, spec, rank=rank),
            spec=spec,
            hardware=hardware[share.worker_id],
        )
        yield from (f"{share.worker_id}: {violation}" for violation in violations)


def _limit_violations(assignment: Assignment) -> Iterator[str]:
    for name in ("num_blocks", "block_size", "max_num_seqs", "max_num_batched_tokens", "max_model_len"):
        if (value := getattr(assignment, name)) <= 0:
            yield f"{name} is {value}, it must be positive."
    if assignment.max_num_batched_tokens < assignment.max_num_seqs:
        yield (
            f"max_num_batched_tokens is {assignment.max_num_batched_tokens}, so {assignment.max_num_seqs} sequences "
            "(max_num_seqs) cannot all decode in one step."
        )
    for name in ("num_host_blocks", "num_draft_tokens"):
        if (value := getattr(assignment, name)) < 0:
            yield f"{name} is {value}, it must not be negative."
    if assignment.preemption == "swap" and assignment.num_host_blocks == 0:
        yield "sequences are to be swapped, and there are no host blocks."


def _length_violations(assignment: Assignment, model: ModelDeployment) -> Iterator[str]:
    length = assignment.max_model_len
    if length > assignment.num_blocks * assignment.block_size:
        yield f"{assignment.num_blocks} blocks hold no sequence of {length} tokens (max_model_len)."
    if length > model.spec.max_position:
        yield f"max_model_len is {length}; the model was built for {model.spec.max_position} tokens."
    if model.max_model_len is not None and length != model.max_model_len:
        yield f"max_model_len is {length}; {model.max_model_len} was asked for."


def _prediction_violations(prediction: Prediction) -> Iterator[str]:
    for name in ("ttft_s", "tpot_s", "tpot_loaded_s", "output_tokens_per_s"):
        value = getattr(prediction, name)
        if not (math.isfinite(value) and value > 0):
            yield f"the prediction's {name} is {value}."
    if prediction.tpot_loaded_s < prediction.tpot_s:
        yield "the prediction has a full replica decode faster than an idle one."


def _latency_violations(latency: LatencyModel) -> Iterator[str]:
    for field in fields(LatencyModel):
        value = getattr(latency, field.name)
        if field.name != "origin" and not (math.isfinite(value) and value >= 0):
            yield f"the latency model's {field.name} is {value}."
