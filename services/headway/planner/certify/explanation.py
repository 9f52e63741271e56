"""Explains a plan in sentences for people."""

from collections import Counter
from collections.abc import Iterator

from headway.core.cluster import PlanWorker
from headway.core.plan.serving import Assignment, ModelDeployment, Prediction, RankShare, Role, ServingPlan
from headway.core.units import format_bytes, format_duration
from headway.planner.certify.choice import explain_choice
from headway.planner.certify.group_explanation import explain_group


def explain(plan: ServingPlan) -> list[str]:
    """Explains a plan from the whole to the parts: who serves what, then each group's memory, limits and
    predictions."""
    return [
        *_explain_replicas(plan),
        *_explain_sharing(plan),
        *explain_choice(plan),
        *(sentence for assignment in plan.assignments for sentence in _explain_assignment(plan, assignment)),
        *_explain_unused(plan),
    ]


def _place(assignment: Assignment) -> str:
    """Names a lone worker, or a group."""
    return assignment.group_id if assignment.has_mates else assignment.worker_id


def _explain_replicas(plan: ServingPlan) -> Iterator[str]:
    rates: dict[str, float] = {}
    kinds: dict[str, str] = {}
    places: dict[str, list[str]] = {}
    for assignment in plan.assignments:
        places.setdefault(assignment.model, []).append(_place(assignment))
        prediction = assignment.prediction
        rate = prediction.output_tokens_per_s or prediction.input_tokens_per_s
        if assignment.role is Role.PREFILL:
            rate = 0.0
        rates[assignment.model] = rates.get(assignment.model, 0.0) + rate
        kinds[assignment.model] = "output" if prediction.output_tokens_per_s else "input"
    for name, names in places.items():
        listed = ", ".join(names)
        yield f"{name} is served by {listed}: {rates[name]:.0f} {kinds[name]} tokens/s expected under full load."
        yield from _explain_roles(name, plan)
    is_shared = len({assignment.worker_id for assignment in plan.assignments}) < len(plan.assignments)
    if len(rates) > 1 and len(plan.assignments) > len(rates) and not is_shared:
        slowest = min(rates, key=lambda name: rates[name])
        spare = "groups" if plan.assignments[0].has_mates else "workers"
        yield (
            f"Spare {spare} went where a token is dearest, as if all models were asked for equally; {slowest} remains "
            "the slowest."
        )


def _explain_sharing(plan: ServingPlan) -> Iterator[str]:
    """Explains each group that serves several models."""
    places: dict[str, list[str]] = {}
    for assignment in plan.assignments:
        places.setdefault(_place(assignment), []).append(assignment.model)
    for place, names in places.items():
        if len(names) > 1:
            reason = f": there are {len(plan.models)} models for {len(places)} such places"
            yield (
                f"{place} serves {', '.join(names[:-1])} and {names[-1]} together"
                f"{reason if len(places) < len(plan.models) else ''}. They take turns, a step each, first come first "
                "served; what is expected of each holds while the others are idle."
            )


def _explain_roles(model: str, plan: ServingPlan) -> Iterator[str]:
    places: dict[Role, list[str]] = {}
    for assignment in plan.assignments:
        if assignment.model == model:
            places.setdefault(assignment.role, []).append(_place(assignment))
    if Role.PREFILL in places:
        yield (
            f"{model}'s prompts are computed by {', '.join(places[Role.PREFILL])}, as was asked for; their blocks go "
            f"to {', '.join(places.get(Role.DECODE, ()))}, which goes on with the sequences. So the time to the first "
            "token is that of the former, the time per token that of the latter."
        )


def _explain_assignment(plan: ServingPlan, assignment: Assignment) -> Iterator[str]:
    model = plan.model(assignment.model)
    workers = [worker for name in assignment.worker_ids if (worker := plan.worker(name)) is not None]
    if model is None or len(workers) < len(assignment.worker_ids):
        yield f"{assignment.worker_id}: the plan lacks its model or its worker, so there is nothing to explain."
        return
    yield from explain_group(assignment, model.spec)
    by_id = {worker.worker_id: worker for worker in workers}
    for share in assignment.shares:
        worker = by_id[share.worker_id]
        is_shared = len(plan.assignments_of(worker.worker_id)) > 1
        yield _explain_memory(worker, share, model, is_shared=is_shared)
        if (sentence := _explain_rest(plan, worker)) and assignment == plan.assignments_of(worker.worker_id)[-1]:
            yield sentence
    if model.spec.encoder is not None:
        yield from _explain_encoder(assignment, model)
        return
    yield _explain_blocks(assignment)
    yield _explain_context(assignment, model)
    yield (
        f"A step runs at most {assignment.max_num_seqs} sequences and {assignment.max_num_batched_tokens} tokens, so "
        f"that a long prompt holds up the others for about {format_duration(_longest_step_s(assignment))} at a time."
    )
    yield _explain_prediction(assignment)


def _on_all(assignment: Assignment) -> str:
    if not assignment.ranks:
        return ""
    return f" on its {len(assignment.ranks)} {'workers' if assignment.has_mates else 'devices'} together"


def _explain_memory(
    worker: PlanWorker, share: Assignment | RankShare, model: ModelDeployment, *, is_shared: bool
) -> str:
    hardware = worker.hardware
    free = "" if is_shared else f"; {format_bytes(hardware.memory_bytes - _used_bytes(share, worker))} stay free"
    each = "" if hardware.num_devices == 1 else "Each device of "
    return (
        f"{each}{worker.worker_id} ({hardware.name}, {hardware.num_threads} threads) may use "
        f"{format_bytes(hardware.memory_bytes)}: {format_bytes(share.weight_bytes)} hold {model.name}'s weights in "
        f"{model.spec.quantization or model.spec.dtype}, {format_bytes(share.reserved_bytes)} are kept for the "
        f"runtime and activations, {format_bytes(share.kv_cache_bytes)} for KV blocks{free}."
    )


def _explain_rest(plan: ServingPlan, worker: PlanWorker) -> str:
    """Says what memory the models of a shared worker leave; '' for a worker with a single model."""
    there = plan.assignments_of(worker.worker_id)
    if len(there) == 1:
        return ""
    shares = [assignment.shares[assignment.worker_ids.index(worker.worker_id)] for assignment in there]
    used_bytes = sum(_used_bytes(share, worker) for share in shares)
    free_bytes = worker.hardware.memory_bytes - used_bytes
    return (
        f"The {len(there)} models of {worker.worker_id} take {format_bytes(used_bytes)} together, the runtime once; "
        f"{format_bytes(free_bytes)} stay free."
    )


def _used_bytes(share: Assignment | RankShare, worker: PlanWorker) -> int:
    on_host = share.host_cache_bytes if worker.hardware.device == "cpu" else 0
    return share.weight_bytes + share.reserved_bytes + share.kv_cache_bytes + on_host


def _explain_encoder(assignment: Assignment, model: ModelDeployment) -> Iterator[str]:
    prediction = assignment.prediction
    yield (
        f"{model.name} does not generate: it takes a sequence of at most {assignment.max_model_len} tokens in one pass "
        f"and keeps no keys and values. A step takes sequences of {assignment.max_num_batched_tokens} tokens together, "
        "or a single longer one."
    )
    answer_s = format_duration(prediction.ttft_s)
    yield f"Expected: an answer after {answer_s} when idle. This rests on {_origin(prediction)}."


def _explain_blocks(assignment: Assignment) -> str:
    num_tokens = assignment.num_blocks * assignment.block_size
    num_longest = num_tokens // assignment.max_model_len
    sharing = "shared between equal prefixes" if assignment.enable_prefix_cache else "not shared between prefixes"
    kv_bytes = sum(share.kv_cache_bytes for share in assignment.shares)
    return (
        f"One token keeps {format_bytes(kv_bytes // num_tokens)} of keys and values{_on_all(assignment)}, so "
        f"{assignment.num_blocks} blocks of {assignment.block_size} tokens hold {num_tokens} tokens: "
        f"{num_longest} of the longest sequences at once. Blocks are {sharing}. {_explain_preemption(assignment)}"
    )


def _explain_preemption(assignment: Assignment) -> str:
    if not assignment.num_host_blocks:
        return "When they run out, the sequence that came last gives way and is computed again."
    host_bytes = sum(share.host_cache_bytes for share in assignment.shares)
    way = {
        "auto": "is swapped there or computed again, whichever takes less time",
        "swap": "is swapped there",
        "recompute": "is computed again",
    }[assignment.preemption]
    return (
        f"{assignment.num_host_blocks} more lie in {format_bytes(host_bytes)} of host memory{_on_all(assignment)}: "
        f"when blocks run out, the sequence that came last {way}."
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
    used = _used(plan)
    unused = [worker for worker in plan.workers if worker.worker_id not in used]
    size = max((len(assignment.worker_ids) for assignment in plan.assignments), default=1)
    num_alike = Counter(worker.hardware.content_hash for worker in unused)
    for worker in unused:
        reason = f"no model fits its {format_bytes(worker.hardware.memory_bytes)}"
        if num_alike[worker.hardware.content_hash] < size:
            reason = f"it takes {size} workers of equal hardware to make a group"
        yield f"{worker.worker_id} serves nothing: {reason}."


def _used(plan: ServingPlan) -> set[str]:
    """The workers that serve something."""
    return {worker_id for assignment in plan.assignments for worker_id in assignment.worker_ids}


def _longest_step_s(assignment: Assignment) -> float:
    return assignment.prediction.latency.step_s(
        prefill_tokens=assignment.max_num_batched_tokens, num_decodes=0, context_tokens=0
    )
