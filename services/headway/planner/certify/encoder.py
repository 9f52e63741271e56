"""Checks the assignment of a model that does not generate."""

import math
from collections.abc import Iterator, Mapping

from headway.core.cluster import Hardware
from headway.core.model import ModelSpec
from headway.core.plan.serving import Assignment, ModelDeployment, RankShare
from headway.planner.certify.memory import RankPart, part_of

_BYTES_PER_NUMBER = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}


def encoder_violations(
    assignment: Assignment, model: ModelDeployment, *, hardware: Mapping[str, Hardware]
) -> Iterator[str]:
    """Lists the rules that the assignment breaks, a sentence each."""
    for name in ("max_num_seqs", "max_num_batched_tokens", "max_model_len"):
        if (value := getattr(assignment, name)) <= 0:
            yield f"{name} is {value}, it must be positive."
    for name in ("num_blocks", "kv_cache_bytes", "num_host_blocks", "host_cache_bytes"):
        if value := getattr(assignment, name):
            yield f"{name} is {value}; {model.name} keeps no keys and values."
    if not model.profile:  # else its spec has the bytes of no stage
        for rank, share in enumerate(assignment.shares):
            memory_bytes = hardware[share.worker_id].memory_bytes
            yield from _memory_violations(share, part_of(assignment, model.spec, rank=rank), model.spec, memory_bytes)
    if assignment.max_model_len > model.spec.max_position:
        yield (
            f"max_model_len is {assignment.max_model_len}; the model was built for {model.spec.max_position} tokens."
        )
    if model.max_model_len is not None and assignment.max_model_len != model.max_model_len:
        yield f"max_model_len is {assignment.max_model_len}; {model.max_model_len} was asked for."
    yield from _prediction_violations(assignment)


def _memory_violations(
    share: Assignment | RankShare, part: RankPart, spec: ModelSpec, memory_bytes: int
) -> Iterator[str]:
    least_bytes = _least_weight_bytes(spec, part)
    if share.weight_bytes < least_bytes:
        yield f"weight_bytes is {share.weight_bytes}; the weights have {least_bytes} at least."
    if share.reserved_bytes < 0:
        yield f"reserved_bytes is {share.reserved_bytes}."
    if (used_bytes := share.weight_bytes + share.reserved_bytes) > memory_bytes:
        yield f"the assignment takes {used_bytes} bytes and the worker has {memory_bytes}."


def _prediction_violations(assignment: Assignment) -> Iterator[str]:
    prediction = assignment.prediction
    for name in ("ttft_s", "input_tokens_per_s"):
        value = getattr(prediction, name)
        if not (math.isfinite(value) and value > 0):
            yield f"the prediction's {name} is {value}."
    for name in ("tpot_s", "tpot_loaded_s", "output_tokens_per_s"):
        if value := getattr(prediction, name):
            yield f"the prediction's {name} is {value}, and the model has no output tokens."


def _least_weight_bytes(spec: ModelSpec, part: RankPart) -> int:
    """The least bytes of the layers' matrices and, in the first stage, of the embedding tables."""
    layer = 4 * spec.hidden_size * part.query_heads_of(spec) * spec.head_dim
    layer += 2 * spec.hidden_size * part.of(spec.intermediate_size)
    tables = (part.of(spec.vocab_size) + spec.max_position) * spec.hidden_size if part.first_layer == 0 else 0
    matrix_bytes = part.num_layers * layer * _BYTES_PER_NUMBER[spec.quantization or spec.dtype]
    return matrix_bytes + tables * _BYTES_PER_NUMBER[spec.dtype]
