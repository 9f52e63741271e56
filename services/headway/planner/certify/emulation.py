"""Checks that a plan says how long emulated devices take, and nothing of the kind for real ones."""

import math
from collections.abc import Iterator, Mapping

from headway.core.cluster import Hardware
from headway.core.plan.serving import Assignment, ModelDeployment


def emulation_violations(
    assignment: Assignment, model: ModelDeployment, hardware: Mapping[str, Hardware]
) -> Iterator[str]:
    """Lists the rules that the assignment breaks, a sentence each. Its workers are known."""
    kinds = {hardware[worker_id].is_emulated for worker_id in assignment.worker_ids}
    if len(kinds) > 1:
        yield "some of its devices are emulated and others are not."
        return
    stages = assignment.stage_latencies
    if kinds == {False}:
        if stages:
            yield "it has stage latencies, and its devices are real."
        if model.profile:
            yield f"'{model.name}' is known by its profile alone, and its devices are real."
        return
    if len(stages) != assignment.parallel.pp:
        yield f"its devices are emulated and have {assignment.parallel.pp} stages; {len(stages)} have a latency."
    if any(not (math.isfinite(stage.base_s) and stage.base_s > 0) for stage in stages):
        yield "a stage of its emulated devices takes no time."


def profiled_violations(assignment: Assignment, hardware: Mapping[str, Hardware]) -> Iterator[str]:
    """Checks a group that serves a model whose layout and bytes only its profile knows."""
    parallel = assignment.parallel
    if (num_ranks := len(assignment.worker_ids)) != parallel.num_ranks:
        yield f"{parallel} has {parallel.num_ranks} ranks, and the assignment tells of {num_ranks}."
    for share in assignment.shares:
        used_bytes, has_bytes = share.weight_bytes + share.reserved_bytes, hardware[share.worker_id].memory_bytes
        if min(share.weight_bytes, share.reserved_bytes) < 0 or used_bytes > has_bytes:
            yield f"{share.worker_id} holds {used_bytes} bytes and has {has_bytes}."
