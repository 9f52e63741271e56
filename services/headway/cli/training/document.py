"""A training plan as `--json` prints it: figures that follow from the plan beside what it holds."""

from collections.abc import Sequence
from typing import Any

from headway.core.codec import to_document
from headway.core.plan.training import TrainingPlan, TrainingStage


def training_document(plan: TrainingPlan, violations: Sequence[str]) -> dict[str, Any]:
    """Args:
    violations: what the certifier says of the plan.
    """
    return {
        "plan_id": plan.plan_id,
        "model": plan.model,
        "cluster": plan.cluster.label,
        "method": plan.method,
        "precision": plan.precision,
        "batch": plan.batch,
        "num_micro_batches": plan.num_micro_batches,
        "slices": list(plan.slices),
        "iteration_s": plan.iteration_s,
        "throughput": plan.throughput,
        "bubble": plan.bubble,
        "once_s": plan.once_s,
        "schedule": to_document(plan.schedule),
        "search_s": plan.search_s,
        "search_cpu_s": plan.search_cpu_s,
        "is_complete": plan.is_complete,
        "stages": [_stage(plan, stage) for stage in plan.stages],
        "shared_parameters": {name: list(stages) for name, stages in plan.shared_parameters.items()},
        "reasons": list(plan.reasons),
        "alternatives": to_document(plan.alternatives),
        "violations": list(violations),
    }


def _stage(plan: TrainingPlan, stage: TrainingStage) -> dict[str, Any]:
    return {
        "operators": list(stage.operators),
        "device": plan.cluster.groups[stage.group].device,
        "devices": list(stage.devices),
        "mesh": list(stage.mesh.shape),
        "micro_batch": plan.micro_batch_of(stage),
        "in_flight": stage.in_flight,
        "recomputes": stage.recomputes,
        "zero_stages": list(stage.zero_stages),
        "forward_s": stage.forward_s,
        "backward_s": stage.backward_s,
        "weight_gradients_s": stage.weight_gradients_s,
        "handover_s": stage.handover_s,
        "once_s": stage.once_s,
        "memory": {**to_document(stage.memory), "total_bytes": stage.memory.total_bytes},
    }
