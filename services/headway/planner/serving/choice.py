"""Chooses the serving plan whose layout suits models and workers best. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from headway.core.catalogue import Catalogue
from headway.core.cluster import PlanWorker
from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.hardware.profile import LinkProfile
from headway.core.parallel_config import SINGLE, ParallelConfig
from headway.core.plan.serving import Alternative, Assignment, EngineLimits, ModelDeployment, ServingPlan, Verdict
from headway.core.profile import Profile
from headway.core.stage_profile import StageProfile
from headway.planner.serving.allotment import Allotment, Terms, allot
from headway.planner.serving.engines import EnginePart, joined, parts_of
from headway.planner.serving.layouts import CandidateLayout, layouts_of, verdict_of, weigh, worth
from headway.planner.serving.layouts import choose as choose_layout
from headway.planner.serving.plan import make_plan


def choose_plan(
    models: Sequence[ModelDeployment],
    workers: Sequence[PlanWorker],
    *,
    limits: EngineLimits,
    profiles: Mapping[str, Profile],
    plan_id: str,
    created_at_s: float,
    stage_profiles: Mapping[str, StageProfile] | None = None,
    current: ServingPlan | None = None,
    link_profiles: Sequence[LinkProfile] = (),
    catalogue: Catalogue | None = None,
) -> ServingPlan:
    """Makes a plan as `make_plan` does, with a layout that the limits leave open; for the models of each engine on the
    workers that have it, and for those of equal terms on the workers that are allotted to them.

    Layouts are weighed by estimates, so that measuring one of them changes no choice.

    Raises:
        InvalidArgumentError, FailedPreconditionError: also without layout, where no layout is feasible.
    """

    def choose(part: Allotment) -> ServingPlan:
        return _choose(
            part.models,
            part.workers,
            limits=part.limits,
            profiles=profiles,
            stage_profiles=stage_profiles,
            plan_id=plan_id,
            created_at_s=created_at_s,
            current=part.current,
            link_profiles=link_profiles,
            catalogue=catalogue,
        )

    parts = parts_of(models, workers, limits=limits, current=current)
    return joined([_choose_each(part, choose) for part in parts], models)


def _choose_each(part: EnginePart, choose: Callable[[Allotment], ServingPlan]) -> ServingPlan:
    """Plans for the models of each terms. Those whose workers do not do get twice as many, where others can spare them:
    only planning tells how many a model needs whose layout is open."""
    needs: dict[Terms, int] = {}
    fault: FailedPreconditionError | None = None
    while True:
        try:
            allotments = allot(part.models, part.workers, limits=part.limits, current=part.current, needs=needs)
        except FailedPreconditionError as error:
            raise fault or error from None
        plans: list[ServingPlan] = []
        for each in allotments:
            try:
                plans.append(choose(each))
            except FailedPreconditionError as error:
                if len(allotments) == 1 or not is_open(each.limits):
                    raise
                fault, needs[each.terms] = error, 2 * len(each.workers)
                break
        else:
            plan = joined(plans, part.models)
            return plan if len(plan.workers) == len(part.workers) else replace(plan, workers=part.workers)


def _choose(
    models: Sequence[ModelDeployment],
    workers: Sequence[PlanWorker],
    *,
    limits: EngineLimits,
    profiles: Mapping[str, Profile],
    plan_id: str,
    created_at_s: float,
    stage_profiles: Mapping[str, StageProfile] | None,
    current: ServingPlan | None,
    link_profiles: Sequence[LinkProfile],
    catalogue: Catalogue | None,
) -> ServingPlan:
    plan_of = partial(
        make_plan,
        models,
        workers,
        stage_profiles=stage_profiles,
        plan_id=plan_id,
        created_at_s=created_at_s,
        link_profiles=link_profiles,
        catalogue=catalogue,
    )

    def plan_with(layout: EngineLimits, known: Mapping[str, Profile]) -> ServingPlan:
        return plan_of(limits=layout, profiles=known, current=current)

    if not is_open(limits) or len(workers) < 2:
        return plan_with(limits, profiles)
    refusal: FailedPreconditionError | None = None
    candidates, unfit = [], []
    try:
        candidates.append(weigh(plan_with(limits, {})))
    except FailedPreconditionError as error:
        refusal = error
        unfit.append(SINGLE)
    for layout in layouts_of(models, num_workers=len(workers) // len(models)):
        if layout == SINGLE:
            continue
        try:
            candidates.append(weigh(plan_with(limits_with(limits, layout), {})))
        except (FailedPreconditionError, InvalidArgumentError):  # the limits themselves have passed above
            unfit.append(layout)
    if not candidates and refusal is not None:
        raise refusal
    in_use = _in_use(current)
    chosen, verdict = choose_layout(candidates, in_use=in_use)
    if chosen.parallel != in_use:
        anew = partial(_weighed_anew, plan_with=partial(plan_of, profiles={}, current=None), limits=limits)
        candidates = [anew(each) if each.parallel == in_use else each for each in candidates]
        chosen, verdict = choose_layout(candidates, in_use=in_use)
    others = sorted((each for each in candidates if each is not chosen), key=worth, reverse=True)
    alternatives = (
        _alternative(chosen, verdict),
        *(_alternative(other, verdict_of(other, chosen, candidates)) for other in others),
        *(Alternative(parallel=layout, verdict=Verdict.UNFIT) for layout in unfit),
    )
    plan = plan_with(limits_with(limits, chosen.parallel), profiles)
    return replace(plan, alternatives=alternatives if len(alternatives) > 1 else ())


def _weighed_anew(
    candidate: CandidateLayout, *, plan_with: Callable[..., ServingPlan], limits: EngineLimits
) -> CandidateLayout:
    """A layout by what it gives where no group keeps its model, if that is more: with other layouts none does.

    Args:
        plan_with: makes a plan of `limits`.
    """
    try:
        anew = weigh(plan_with(limits=limits_with(limits, candidate.parallel)))
    except FailedPreconditionError:
        return candidate
    return max(candidate, anew, key=lambda each: (each.rate_at_slo, each.rate))


def is_open(limits: EngineLimits) -> bool:
    """Whether the operator leaves the layout to the planner."""
    axes = (limits.tp, limits.pp, limits.cp, limits.cp_ffn)
    return limits.parallel == SINGLE and all(axis is None for axis in axes) and not limits.is_disaggregated


def limits_with(limits: EngineLimits, layout: ParallelConfig) -> EngineLimits:
    """Sets the layout in the limits."""
    return replace(limits, tp=layout.tp, pp=layout.pp, cp=layout.cp, cp_ffn=layout.cp_ffn)


def _in_use(current: ServingPlan | None) -> ParallelConfig | None:
    """The layout that was chosen for the plan in use; None where an operator had set it, who now does not."""
    return current.alternatives[0].parallel if current is not None and current.alternatives else None


def _longest_len(plan: ServingPlan, assignment: Assignment) -> int:
    model = plan.model(assignment.model)
    assert model is not None, "a plan has the models that it assigns"
    if model.spec.encoder is not None:
        return assignment.max_model_len
    return min(model.spec.max_position, assignment.num_blocks * assignment.block_size)


def _alternative(candidate: CandidateLayout, verdict: Verdict) -> Alternative:
    assignments = candidate.plan.assignments
    return Alternative(
        parallel=candidate.parallel,
        verdict=verdict,
        num_groups=len({assignment.group_id for assignment in assignments}),
        tpot_s=candidate.tpot_s,
        output_tokens_per_s=worth(candidate),
        longest_len=min(_longest_len(candidate.plan, assignment) for assignment in assignments),
    )
