"""Why a plan is as it is, in sentences for people."""

from collections.abc import Iterator

from headway.core.plan import Assignment, ModelDeployment, Prediction, ServingPlan
from headway.core.units import format_bytes, format_duration


def explain(plan: ServingPlan) -> list[str]:
    """From the whole to the parts: who serves what, then each worker's memory, limits and predictions."""
    return [
        *_explain_replicas(plan),
        *(sentence for assignment in plan.assignments for sentence in _explain_assignment(plan, assignment)),
        *_explain_unused(plan),
    ]


def _explain_replicas(plan: ServingPlan) -> Iterator[str]:
    rates: dict[str, float] = {}
    kinds: dict[str, str] = {}
    workers: dict[str, list[str]] = {}
    for assignment in plan.assignments:
        workers.setdefault(assignment.model, []).append(assignment.worker_id)
        prediction = assignment.prediction
        rate = prediction.output_tokens_per_s or prediction.input_tokens_per_s
        rates[assignment.model] = rates.get(assignment.model, 0.0) + rate
        kinds[assignment.model] = "output" if prediction.output_tokens_per_s else "input"
    for name, worker_ids in workers.items():
        listed = ", ".join(worker_ids)
        yield f"{name} is served by {listed}: {rates[name]:.0f} {kinds[name]} tokens/s expected under full load."
    if len(rates) > 1 and len(plan.assignments) > len(rates):
        slowest = min(rates, key=lambda name: rates[name])
        yield (
            f"Spare workers went where a token is dearest, as if all models were asked for equally; {slowest} remains "
            "the slowest."
        )


def _explain_assignment(plan: ServingPlan, assignment: Assignment) -> Iterator[str]:
    model, worker = plan.model(assignment.model), plan.worker(assignment.worker_id)
    if model is None or worker is None:
        yield f"{assignment.worker_id}: the plan lacks its model or its worker, so there is nothing to explain."
        return
    memory_bytes = worker.hardware.memory_bytes
    used_bytes = assignment.weight_bytes + assignment.reserved_bytes + assignment.kv_cache_bytes
    if worker.hardware.device == "cpu":
        used_bytes += assignment.host_cache_bytes
    yield (
        f"{worker.worker_id} ({worker.hardware.name}, {worker.hardware.num_threads} threads) may use "
        f"{format_bytes(memory_bytes)}: {format_bytes(assignment.weight_bytes)} hold {model.name}'s weights in "
        f"{model.spec.quantization or model.spec.dtype}, {format_bytes(assignment.reserved_bytes)} are kept for the "
        f"runtime and activations, {format_bytes(assignment.kv_cache_bytes)} for KV blocks; "
        f"{format_bytes(memory_bytes - used_bytes)} stay free."
    )
    if model.spec.encoder is not None:
        yield from _explain_encoder(assignment, model)
        return
    yield _explain_blocks(assignment, model)
    yield _explain_context(assignment, model)
    yield (
        f"A step runs at most {assignment.max_num_seqs} sequences and {assignment.max_num_batched_tokens} tokens, so "
        f"that a long prompt holds up the others for about {format_duration(_longest_step_s(assignment))} at a time."
    )
    yield _explain_prediction(assignment)


def _explain_encoder(assignment: Assignment, model: ModelDeployment) -> Iterator[str]:
    prediction = assignment.prediction
    yield (
        f"{model.name} does not generate: it takes a sequence of at most {assignment.max_model_len} tokens in one pass "
        f"and keeps no keys and values. A step takes sequences of {assignment.max_num_batched_tokens} tokens together, "
        "or a single longer one."
    )
    answer_s = format_duration(prediction.ttft_s)
    yield f"Expected: an answer after {answer_s} when idle. This rests on {_origin(prediction)}."


def _explain_blocks(assignment: Assignment, model: ModelDeployment) -> str:
    num_tokens = assignment.num_blocks * assignment.block_size
    num_longest = num_tokens // assignment.max_model_len
    sharing = "shared between equal prefixes" if assignment.enable_prefix_cache else "not shared between prefixes"
    return (
        f"One token keeps {format_bytes(model.spec.kv_bytes_per_token)} of keys and values, so "
        f"{assignment.num_blocks} blocks of {assignment.block_size} tokens hold {num_tokens} tokens: "
        f"{num_longest} of the longest sequences at once. Blocks are {sharing}. {_explain_preemption(assignment)}"
    )


def _explain_preemption(assignment: Assignment) -> str:
    if not assignment.num_host_blocks:
        return "When they run out, the sequence that came last gives way and is computed again."
    way = {
        "auto": "is swapped there or computed again, whichever takes less time",
        "swap": "is swapped there",
        "recompute": "is computed again",
    }[assignment.preemption]
    return (
        f"{assignment.num_host_blocks} more lie in {format_bytes(assignment.host_cache_bytes)} of host memory: when "
        f"blocks run out, the sequence that came last {way}."
    )


def _explain_context(assignment: Assignment, model: ModelDeployment) -> str:
    length = assignment.max_model_len
    if model.max_model_len is not None:
        return f"Sequences have at most {length} tokens, as was asked for."
    if length == model.spec.max_position:
        return f"Sequences have at most {length} tokens, the longest that {model.name} was built for."
    return (
        f"Sequences have at most {length} tokens: memory holds no more, though {model.name} was built for "
        f"{model.spec.max_position}."
    )


def _explain_prediction(assignment: Assignment) -> str:
    prediction = assignment.prediction
    return (
        f"Expected: first token after {format_duration(prediction.ttft_s)}, then one every "
        f"{format_duration(prediction.tpot_s)} alone and every {format_duration(prediction.tpot_loaded_s)} under full "
        f"load. This rests on {_origin(prediction)}."
    )


def _origin(prediction: Prediction) -> str:
    if prediction.profile_id:
        return f"profile {prediction.profile_id}, measured to within {prediction.latency.relative_error:.0%}"
    return "an estimate from the hardware's name, which may be off by a factor of two"


def _explain_unused(plan: ServingPlan) -> Iterator[str]:
    used = {assignment.worker_id for assignment in plan.assignments}
    for worker in plan.workers:
        if worker.worker_id not in used:
            yield f"{worker.worker_id} serves nothing: no model fits its {format_bytes(worker.hardware.memory_bytes)}."


def _longest_step_s(assignment: Assignment) -> float:
    return assignment.prediction.latency.step_s(
        prefill_tokens=assignment.max_num_batched_tokens, num_decodes=0, context_tokens=0
    )
