"""Explains why a plan has its layout, and what became of the other layouts."""

from collections.abc import Iterator

from headway.core.parallel_config import SINGLE
from headway.core.plan.serving import Alternative, ServingPlan, Verdict
from headway.core.units import format_duration

_NUM_TOLD = 5
_REASONS = {
    Verdict.REPLICAS: "every model fits one worker, and replicas exchange nothing and fail one by one",
    Verdict.BEST: "of the layouts that fit it is expected to give the most, or nearly so with the least time per token",
    Verdict.KEPT: "it is in use, and no other is expected to gain enough for a change",
}
_FATES = {
    Verdict.WORSE: "is expected to give less",
    Verdict.BETTER: "is expected to give more, which an estimate does not prove; ask for it with {flags}",
    Verdict.MISSES: "would miss the objective",
}


def explain_choice(plan: ServingPlan) -> Iterator[str]:
    """Explains the chosen layout, the best of the others, and what does not fit; says nothing where there was no
    choice."""
    if not plan.alternatives:
        return
    chosen, *others = plan.alternatives
    reason = _REASONS[chosen.verdict]
    yield f"Of {len(plan.alternatives)} layouts {_name(chosen)} was chosen: {reason}. {_figures(chosen)}"
    fitting = [other for other in others if other.verdict is not Verdict.UNFIT]
    for other in fitting[:_NUM_TOLD]:
        yield f"{_name(other)} {_FATES[other.verdict].format(flags=other.parallel.flags)}. {_figures(other)}"
    if len(fitting) > _NUM_TOLD:
        yield f"{len(fitting) - _NUM_TOLD} more layouts fit and are expected to give no more than these."
    if unfit := [_name(other) for other in others if other.verdict is Verdict.UNFIT]:
        yield f"These do not fit, or leave a model without a group: {', '.join(unfit)}."


def _name(alternative: Alternative) -> str:
    parallel = alternative.parallel
    if parallel == SINGLE:
        return "one worker each"
    return f"{parallel} with split weights" if parallel.cp_ffn == "tensor" else str(parallel)


def _figures(alternative: Alternative) -> str:
    groups = "1 group" if alternative.num_groups == 1 else f"{alternative.num_groups} groups"
    return (
        f"Estimated for {groups}: {alternative.output_tokens_per_s:.0f} tokens/s, "
        f"{format_duration(alternative.tpot_s)} per token of a lone sequence, a sequence of at most "
        f"{alternative.longest_len} tokens."
    )
