"""Lists the layouts that models and workers allow, and chooses one. Pure.

Lone workers are taken wherever every model fits one and there is no objective: replicas exchange nothing and fail one
by one. They give way to a layout of twice their throughput: that is more than an estimate errs, as where weights leave
hardly room for a cache. Else the layout whose model that is served slowest has the most output tokens per second within
its objective is best; of those that come near it, the one with the least time per token. The layout in use stays unless
another gains clearly: a change loads every model anew.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from headway.core.errors import InvalidArgumentError
from headway.core.parallel_config import CP_FFN, SINGLE, ParallelConfig
from headway.core.plan.serving import Assignment, ModelDeployment, ServingPlan, Verdict
from headway.core.shard import check_parallel
from headway.planner.serving.prediction import REFERENCE_TOKENS

MIN_GAIN = 1.2
"""Times the throughput of the layout in use, for another to replace it."""

CERTAIN_GAIN = 2.0
"""Times the throughput of lone workers, for another layout to take their place without an objective."""

_MAX_RANKS = 16
_NEAR = 0.95
"""Of the best throughput; estimates do not tell such layouts apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateLayout:
    """A layout with its plan.

    Attributes:
        rate: of the model that is served slowest, output tokens/s at any latency.
        rate_at_slo: the same within the models' objectives; 0 where one of them cannot be kept.
        tpot_s: of the slowest group with one running sequence.
    """

    parallel: ParallelConfig
    plan: ServingPlan
    rate: float
    rate_at_slo: float
    tpot_s: float


def layouts_of(models: Sequence[ModelDeployment], *, num_workers: int) -> Iterator[ParallelConfig]:
    """The layouts that every model allows, of 16 ranks at most, fewest ranks first."""
    most = min(num_workers, _MAX_RANKS)
    sizes = range(1, most + 1)
    axes = [axes for axes in product(sizes, sizes, sizes) if axes[0] * axes[1] * axes[2] <= most]
    for tp, pp, cp in sorted(axes, key=lambda axes: (axes[0] * axes[1] * axes[2], axes)):
        for cp_ffn in CP_FFN if cp > 1 else CP_FFN[:1]:
            layout = ParallelConfig(tp=tp, pp=pp, cp=cp, cp_ffn=cp_ffn)
            if all(_is_allowed(model, layout) for model in models):
                yield layout


def weigh(plan: ServingPlan) -> CandidateLayout:
    """Estimates what a plan is worth; models that share a group have an equal part of its time each."""
    rates = {model.name: 0.0 for model in plan.models}
    rates_at_slo = dict(rates)
    num_sharing = Counter(assignment.worker_id for assignment in plan.assignments)
    for assignment in plan.assignments:
        model = plan.model(assignment.model)
        assert model is not None, "a plan has the models that it assigns"
        share = 1 / num_sharing[assignment.worker_id]
        rates[model.name] += share * rate_of(assignment, model, num_seqs=_num_seqs(assignment, model))
        rates_at_slo[model.name] += share * rate_of(assignment, model, num_seqs=_num_seqs_at_slo(assignment, model))
    return CandidateLayout(
        parallel=plan.assignments[0].parallel,
        plan=plan,
        rate=min(rates.values()),
        rate_at_slo=min(rates_at_slo.values()),
        tpot_s=max(assignment.prediction.tpot_s for assignment in plan.assignments),
    )


def rate_of(assignment: Assignment, model: ModelDeployment, *, num_seqs: int) -> float:
    """Output tokens/s with that many running sequences; input tokens/s of a model that does not generate."""
    if model.spec.encoder is not None:
        return assignment.prediction.input_tokens_per_s if num_seqs else 0.0
    context_tokens = num_seqs * context_of(assignment, model)
    latency = assignment.prediction.latency
    return num_seqs / latency.decode_s(num_decodes=num_seqs, context_tokens=context_tokens)


def context_of(assignment: Assignment, model: ModelDeployment) -> int:
    """Tokens that a running sequence usually has: half of the length that was asked for, else as predictions have."""
    if model.max_model_len is not None:
        return max(1, model.max_model_len // 2)
    return min(REFERENCE_TOKENS, assignment.max_model_len - 1)


def choose(candidates: Sequence[CandidateLayout], *, in_use: ParallelConfig | None) -> tuple[CandidateLayout, Verdict]:
    """Chooses the layout to take, and says why.

    Args:
        candidates: one at least, each of another layout.
        in_use: the layout of the plan that is in use.
    """
    best, verdict = _choose_best(candidates)
    current = next((candidate for candidate in candidates if candidate.parallel == in_use), None)
    if current is None or current is best:
        return best, verdict
    is_as_good = bool(current.rate_at_slo) or not best.rate_at_slo
    if is_as_good and _worth(best, candidates) < MIN_GAIN * _worth(current, candidates):
        return current, Verdict.KEPT
    return best, verdict


def verdict_of(candidate: CandidateLayout, chosen: CandidateLayout, candidates: Sequence[CandidateLayout]) -> Verdict:
    """The verdict on a layout that was not chosen."""
    if chosen.rate_at_slo and not candidate.rate_at_slo:
        return Verdict.MISSES
    is_better = _worth(candidate, candidates) > _worth(chosen, candidates)
    return Verdict.BETTER if is_better else Verdict.WORSE


def worth(candidate: CandidateLayout) -> float:
    """Tokens/s within the objectives, or at any latency where these cannot be kept."""
    return candidate.rate_at_slo or candidate.rate


def _choose_best(candidates: Sequence[CandidateLayout]) -> tuple[CandidateLayout, Verdict]:
    alone = next((candidate for candidate in candidates if candidate.parallel == SINGLE), None)
    has_slo = any(model.slo for model in candidates[0].plan.models)
    can_keep_slo = any(candidate.rate_at_slo for candidate in candidates)
    best_worth = max(_worth(candidate, candidates) for candidate in candidates)
    if alone is not None and not (has_slo and can_keep_slo) and best_worth < CERTAIN_GAIN * alone.rate:
        return alone, Verdict.REPLICAS
    near = [candidate for candidate in candidates if _worth(candidate, candidates) >= _NEAR * best_worth]
    return min(near, key=lambda candidate: (candidate.tpot_s, candidate.parallel.num_ranks)), Verdict.BEST


def _worth(candidate: CandidateLayout, candidates: Sequence[CandidateLayout]) -> float:
    """The rate that a layout is judged by: within the objectives if any layout keeps them."""
    can_keep_slo = any(other.rate_at_slo for other in candidates)
    return candidate.rate_at_slo if can_keep_slo else candidate.rate


def _is_allowed(model: ModelDeployment, layout: ParallelConfig) -> bool:
    try:
        check_parallel(model.spec, layout, num_workers=layout.num_ranks)
    except InvalidArgumentError:
        return False
    return True


def _num_seqs(assignment: Assignment, model: ModelDeployment) -> int:
    """Number of sequences that may run and have blocks."""
    if model.spec.encoder is not None:
        return 1
    num_each = -(-context_of(assignment, model) // assignment.block_size)
    return max(1, min(assignment.max_num_seqs, assignment.num_blocks // num_each))


def _num_seqs_at_slo(assignment: Assignment, model: ModelDeployment) -> int:
    """The most sequences that keep the model's objective; 0 where even one does not."""
    slo, latency = model.slo, assignment.prediction.latency
    num_seqs = _num_seqs(assignment, model)
    if slo.ttft_s is not None and assignment.prediction.ttft_s > slo.ttft_s:
        return 0
    if slo.tpot_s is None or model.spec.encoder is not None:
        return num_seqs
    each_s = latency.per_decode_s + latency.per_context_token_s * context_of(assignment, model)
    return max(0, min(num_seqs, int((slo.tpot_s - latency.base_s) / each_s)))
