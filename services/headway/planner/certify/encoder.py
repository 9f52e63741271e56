"""What is wrong with the assignment of a model that does not generate."""

import math
from collections.abc import Iterator

from headway.core.model import ModelSpec
from headway.core.plan import Assignment, ModelDeployment

_BYTES_PER_NUMBER = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}


def encoder_violations(assignment: Assignment, model: ModelDeployment, *, memory_bytes: int) -> Iterator[str]:
    """Sentences, one for each rule that the assignment breaks."""
    for name in ("max_num_seqs", "max_num_batched_tokens", "max_model_len"):
        if (value := getattr(assignment, name)) <= 0:
            yield f"{name} is {value}, it must be positive."
    for name in ("num_blocks", "kv_cache_bytes", "num_host_blocks", "host_cache_bytes"):
        if value := getattr(assignment, name):
            yield f"{name} is {value}; {model.name} keeps no keys and values."
    yield from _memory_violations(assignment, model.spec, memory_bytes)
    if assignment.max_model_len > model.spec.max_position:
        yield (
            f"max_model_len is {assignment.max_model_len}; the model was built for {model.spec.max_position} tokens."
        )
    if model.max_model_len is not None and assignment.max_model_len != model.max_model_len:
        yield f"max_model_len is {assignment.max_model_len}; {model.max_model_len} was asked for."
    yield from _prediction_violations(assignment)


def _memory_violations(assignment: Assignment, spec: ModelSpec, memory_bytes: int) -> Iterator[str]:
    least_bytes = _least_weight_bytes(spec)
    if assignment.weight_bytes < least_bytes:
        yield f"weight_bytes is {assignment.weight_bytes}; the weights have {least_bytes} at least."
    if assignment.reserved_bytes < 0:
        yield f"reserved_bytes is {assignment.reserved_bytes}."
    if (used_bytes := assignment.weight_bytes + assignment.reserved_bytes) > memory_bytes:
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


def _least_weight_bytes(spec: ModelSpec) -> int:
    """Bytes of the layers' matrices and of the tables."""
    layer = 4 * spec.hidden_size * spec.hidden_size + 2 * spec.hidden_size * spec.intermediate_size
    tables = (spec.vocab_size + spec.max_position) * spec.hidden_size
    matrix_bytes = spec.num_layers * layer * _BYTES_PER_NUMBER[spec.quantization or spec.dtype]
    return matrix_bytes + tables * _BYTES_PER_NUMBER[spec.dtype]
