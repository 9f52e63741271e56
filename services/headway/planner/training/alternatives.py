"""What a plan is better than, and by how much. Pure."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from headway.core.cost.costs import Costs
from headway.core.errors import HeadwayError
from headway.core.plan.training import TrainingAlternative
from headway.core.units import format_duration
from headway.planner.training.alpa import AlpaSearch
from headway.planner.training.baselines import BASELINES, Baseline, narrowed
from headway.planner.training.graph_search import Pipeline
from headway.planner.training.misfit import Misfit, missing_bytes
from headway.planner.training.problem import TrainingProblem
from headway.planner.training.shape import shape_of


def alternatives(
    problem: TrainingProblem,
    costs: Sequence[Costs],
    found: Pipeline,
    *,
    micro_batches: Sequence[int],
    should_stop: Callable[[], bool],
) -> Iterator[TrainingAlternative]:
    """The best plan of each baseline that can differ from the full search, or what it lacks.

    Args:
        micro_batches: numbers that are tried.
    """
    for baseline in BASELINES.values():
        if should_stop():
            return
        if not baseline.differs(found.step.training):
            continue
        yield _alternative(replace(problem, micro_batches=tuple(micro_batches)), costs, found, baseline)


def _alternative(
    problem: TrainingProblem, costs: Sequence[Costs], found: Pipeline, baseline: Baseline
) -> TrainingAlternative:
    narrow = narrowed(problem, baseline)
    search = AlpaSearch(narrow, costs)
    try:
        tables = [search.tables(number) for number in narrow.numbers_of_micro_batches()]
    except HeadwayError as error:
        return TrainingAlternative(name=baseline.name, layout=baseline.what, why_not=(error.message,))
    pipelines = [search.cut(each) for each in tables]
    best = min((each for each in pipelines if each), key=lambda each: each.iteration_s, default=None)
    if best is None:
        missing = [more for each in tables if (more := missing_bytes(search, each, narrow.cluster)) is not None]
        misfit = Misfit(problem=narrow, missing_bytes=min(missing, default=None))
        return TrainingAlternative(
            name=baseline.name,
            layout=baseline.what,
            missing_bytes=misfit.missing_bytes,
            why_not=(f"{misfit.sentence()}.",),
        )
    return TrainingAlternative(
        name=baseline.name,
        iteration_s=best.iteration_s,
        layout=str(shape_of(best)),
        why_not=tuple(_why_not(best, found)),
    )


def _why_not(other: Pipeline, found: Pipeline) -> Iterator[str]:
    ratio = other.iteration_s / found.iteration_s
    if ratio < 1 + 1e-6:
        yield "It is as fast."
        return
    yield f"It takes {format_duration(other.iteration_s)}: {ratio:.3g} times as long."
    parts = {
        "the slowest stage's micro-batches": (_busy_s(other), _busy_s(found)),
        "filling and draining the pipeline": (_filling_s(other), _filling_s(found)),
        "gradients and the optimizer": (_once_s(other), _once_s(found)),
    }
    what, (longer_s, shorter_s) = max(parts.items(), key=lambda part: part[1][0] - part[1][1])
    yield f"Most of it is {what}: {format_duration(longer_s)} instead of {format_duration(shorter_s)}."


def _busy_s(found: Pipeline) -> float:
    return found.num_micro_batches * max(stage.latency_s for stage in found.stages)


def _filling_s(found: Pipeline) -> float:
    return found.iteration_s - _busy_s(found) - _once_s(found)


def _once_s(found: Pipeline) -> float:
    return max(stage.once_s for stage in found.stages)
