"""What is wrong with a serving plan. Every figure is worked out here again, from the model's dimensions."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields

from headway.core.latency import LatencyModel
from headway.core.model import Family, ModelSpec
from headway.core.plan import Assignment, ModelDeployment, Prediction, ServingPlan

_BYTES_PER_NUMBER = {"float32": 4, "float16": 2, "bfloat16": 2}


def find_violations(plan: ServingPlan) -> list[str]:
    """Sentences, one for each rule that the plan breaks; empty for a valid plan."""
    return [*_identity_violations(plan), *_coverage_violations(plan), *_assignment_violations(plan)]


def _identity_violations(plan: ServingPlan) -> Iterator[str]:
    if not plan.plan_id:
        yield "The plan has no id."
    if not (math.isfinite(plan.created_at_s) and plan.created_at_s >= 0):
        yield f"The plan was created at {plan.created_at_s} s."
    yield from _repeated("model", [model.name for model in plan.models])
    yield from _repeated("worker", [worker.worker_id for worker in plan.workers])
    yield from _repeated("group", [assignment.group_id for assignment in plan.assignments])
    yield from _repeated("assignment to worker", [assignment.worker_id for assignment in plan.assignments])


def _repeated(what: str, names: list[str]) -> Iterator[str]:
    for name, count in Counter(names).items():
        if not name:
            yield f"A {what} has no name."
        elif count > 1:
            yield f"There are {count} {what}s '{name}'."


def _coverage_violations(plan: ServingPlan) -> Iterator[str]:
    if not plan.models:
        yield "The plan serves no model."
    served = {assignment.model for assignment in plan.assignments}
    for model in plan.models:
        if model.name not in served:
            yield f"No worker serves model '{model.name}'."


def _assignment_violations(plan: ServingPlan) -> Iterator[str]:
    models = {model.name: model for model in plan.models}
    memory_bytes = {worker.worker_id: worker.hardware.memory_bytes for worker in plan.workers}
    for assignment in plan.assignments:
        model, worker_id = models.get(assignment.model), assignment.worker_id
        if model is None:
            yield f"{worker_id} serves model '{assignment.model}', which the plan does not have."
            continue
        if worker_id not in memory_bytes:
            yield f"The plan assigns '{assignment.model}' to worker '{worker_id}', which it does not have."
            continue
        violations = (
            *_limit_violations(assignment),
            *_memory_violations(assignment, model.spec, memory_bytes[worker_id]),
            *_length_violations(assignment, model),
            *_prediction_violations(assignment.prediction),
        )
        yield from (f"{worker_id}: {violation}" for violation in violations)


def _limit_violations(assignment: Assignment) -> Iterator[str]:
    for name in ("num_blocks", "block_size", "max_num_seqs", "max_num_batched_tokens", "max_model_len"):
        if (value := getattr(assignment, name)) <= 0:
            yield f"{name} is {value}, it must be positive."
    if assignment.max_num_batched_tokens < assignment.max_num_seqs:
        yield (
            f"max_num_batched_tokens is {assignment.max_num_batched_tokens}, so {assignment.max_num_seqs} sequences "
            "(max_num_seqs) cannot all decode in one step."
        )


def _memory_violations(assignment: Assignment, spec: ModelSpec, memory_bytes: int) -> Iterator[str]:
    least_weight_bytes = _num_weights(spec) * _BYTES_PER_NUMBER[spec.dtype]
    if assignment.weight_bytes < least_weight_bytes:
        yield f"weight_bytes is {assignment.weight_bytes}; the weights have {least_weight_bytes} at least."
    if assignment.reserved_bytes < 0:
        yield f"reserved_bytes is {assignment.reserved_bytes}."
    kv_bytes = assignment.num_blocks * assignment.block_size * _kv_bytes_of_token(spec)
    if assignment.kv_cache_bytes != kv_bytes:
        yield (
            f"kv_cache_bytes is {assignment.kv_cache_bytes}; {assignment.num_blocks} blocks of "
            f"{assignment.block_size} tokens have {kv_bytes}."
        )
    used_bytes = assignment.weight_bytes + assignment.reserved_bytes + max(assignment.kv_cache_bytes, kv_bytes)
    if used_bytes > memory_bytes:
        yield f"the assignment takes {used_bytes} bytes and the worker has {memory_bytes}."


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
    for field in fields(LatencyModel):
        value = getattr(prediction.latency, field.name)
        if field.name != "origin" and not (math.isfinite(value) and value >= 0):
            yield f"the latency model's {field.name} is {value}."


def _kv_bytes_of_token(spec: ModelSpec) -> int:
    numbers_per_layer = spec.num_kv_heads * spec.head_dim + spec.num_kv_heads * spec.head_dim
    return numbers_per_layer * spec.num_layers * _BYTES_PER_NUMBER[spec.dtype]


def _num_weights(spec: ModelSpec) -> int:
    """Numbers in the matrices of a checkpoint; how the worker packs them can only add to that."""
    query_width, kv_width = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    layer = [(spec.hidden_size, query_width), (query_width, spec.hidden_size)]
    layer += 2 * [(spec.hidden_size, kv_width)]
    layer += [(spec.hidden_size, spec.intermediate_size), (spec.intermediate_size, spec.hidden_size)]
    if spec.family is Family.LLAMA:  # its MLP is gated
        layer.append((spec.hidden_size, spec.intermediate_size))
    outer = [(spec.vocab_size, spec.embedding_dim or spec.hidden_size)]
    if not spec.tied_embeddings:
        outer.append(outer[0])
    return spec.num_layers * sum(rows * columns for rows, columns in layer) + sum(
        rows * columns for rows, columns in outer
    )
