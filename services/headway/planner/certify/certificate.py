"""What is wrong with a serving plan. Every figure is worked out here again, from the model's dimensions."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields

from headway.core.cluster import Hardware
from headway.core.latency import LatencyModel
from headway.core.model import Family, ModelSpec
from headway.core.plan import Assignment, ModelDeployment, Prediction, ServingPlan
from headway.planner.certify.encoder import encoder_violations

_BYTES_PER_NUMBER = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}


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
    hardware = {worker.worker_id: worker.hardware for worker in plan.workers}
    for assignment in plan.assignments:
        model, worker_id = models.get(assignment.model), assignment.worker_id
        if model is None:
            yield f"{worker_id} serves model '{assignment.model}', which the plan does not have."
            continue
        if worker_id not in hardware:
            yield f"The plan assigns '{assignment.model}' to worker '{worker_id}', which it does not have."
            continue
        violations = (
            *_kind_violations(assignment, model, hardware[worker_id]),
            *_latency_violations(assignment.prediction.latency),
        )
        yield from (f"{worker_id}: {violation}" for violation in violations)


def _kind_violations(assignment: Assignment, model: ModelDeployment, hardware: Hardware) -> Iterator[str]:
    """Those of a model that generates, or of one that does not."""
    if model.spec.encoder is not None:
        yield from encoder_violations(assignment, model, memory_bytes=hardware.memory_bytes)
        return
    yield from _limit_violations(assignment)
    yield from _memory_violations(assignment, model.spec, hardware)
    yield from _length_violations(assignment, model)
    yield from _prediction_violations(assignment.prediction)


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


def _memory_violations(assignment: Assignment, spec: ModelSpec, hardware: Hardware) -> Iterator[str]:
    least_weight_bytes = _least_weight_bytes(spec)
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
    host_bytes = assignment.num_host_blocks * assignment.block_size * _kv_bytes_of_token(spec)
    if assignment.host_cache_bytes != host_bytes:
        yield (
            f"host_cache_bytes is {assignment.host_cache_bytes}; {assignment.num_host_blocks} blocks of "
            f"{assignment.block_size} tokens have {host_bytes}."
        )
    if hardware.device == "cpu":  # both tiers are the same memory there
        used_bytes += max(assignment.host_cache_bytes, host_bytes)
    if used_bytes > hardware.memory_bytes:
        yield f"the assignment takes {used_bytes} bytes and the worker has {hardware.memory_bytes}."


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


def _kv_bytes_of_token(spec: ModelSpec) -> int:
    numbers_per_layer = spec.num_kv_heads * spec.head_dim + spec.num_kv_heads * spec.head_dim
    return numbers_per_layer * spec.num_layers * _BYTES_PER_NUMBER[spec.dtype]


def _least_weight_bytes(spec: ModelSpec) -> int:
    """Bytes of a checkpoint's matrices in the types they are held in; how the worker packs them only adds to that."""
    query_width, kv_width = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    attention = 2 * spec.hidden_size * query_width + 2 * spec.hidden_size * kv_width
    matrices = sum(attention + _num_mlp_weights(spec, layer) for layer in range(spec.num_layers))
    embedding = spec.vocab_size * (spec.embedding_dim or spec.hidden_size)
    if not spec.tied_embeddings:
        matrices += embedding
    matrix_bytes = matrices * _BYTES_PER_NUMBER[spec.quantization or spec.dtype]
    return matrix_bytes + embedding * _BYTES_PER_NUMBER[spec.dtype]


def _num_mlp_weights(spec: ModelSpec, layer: int) -> int:
    width, experts = spec.intermediate_size, spec.experts
    if experts is not None and (not experts.sparse_layers or experts.sparse_layers[layer]):
        width = experts.num_experts * experts.intermediate_size + experts.shared_intermediate_size
    num_matrices = 3 if spec.family is Family.LLAMA else 2  # its MLP is gated
    return num_matrices * spec.hidden_size * width
