"""Explains why one placement keeps fewer objectives than another. Pure."""

from collections.abc import Iterator

from headway.core.placement import Placement
from headway.core.placement_problem import PlacementProblem
from headway.core.plan.placement import PredictedAttainment, Predictions
from headway.core.units import format_bytes

_MOST_NAMED = 3
_SATURATED = 0.8
_SAME = 5e-5
"""Attainments that are printed alike."""


def why_not(
    problem: PlacementProblem,
    chosen: Predictions,
    *,
    other: Predictions,
    placement: Placement | None,
) -> tuple[str, ...]:
    """Says what speaks against the other placement, in sentences; also where nothing does.

    Args:
        placement: the other one; None where it changes with time.
    """
    return (
        *_compare(chosen, other),
        *_losers(chosen.held_out, other.held_out),
        *(() if placement is None else _saturated(placement, other.held_out)),
        *(() if placement is None else _unplaced(problem, placement)),
        *(() if placement is None else misfits(problem, placement)),
    )


def misfits(problem: PlacementProblem, placement: Placement) -> Iterator[str]:
    """Says where a placement asks for more than there is."""
    of_device = {kind.device: kind for kind in problem.kinds}
    for kind in problem.kinds:
        num_taken = sum(group.shape.num_devices for group in placement.groups if group.shape.device == kind.device)
        if num_taken > kind.num_devices:
            yield f"It takes {num_taken} devices{kind.device and f' {kind.device}'}, and there are {kind.num_devices}."
    models = {model.name: model for model in problem.placed_models}
    for number, group in enumerate(placement.groups):
        has_bytes = of_device[group.shape.device].memory_bytes
        needed = sum(models[name].needed_bytes(group.shape, has_bytes) or 0 for name in group.models)
        if needed > has_bytes:
            yield (
                f"Group {number} needs {format_bytes(needed)} on a device for its models, and there are "
                f"{format_bytes(has_bytes)}."
            )
        if len(problem.span_of(group.shape)) > 1 and any(models[name].generates for name in group.models):
            yield f"Group {number} spans nodes, and what that takes a model that generates is not known."


def _compare(chosen: Predictions, other: Predictions) -> Iterator[str]:
    ahead = chosen.held_out.attainment - other.held_out.attainment
    if abs(ahead) < _SAME:
        yield "It keeps as many objectives on the requests that were held out."
    elif ahead < 0:
        yield (
            f"It keeps {-ahead:.2%} more of the objectives on the requests that were held out, and "
            f"{other.searched.attainment - chosen.searched.attainment:+.2%} on those that were searched, which decide."
        )
    else:
        yield f"It keeps {ahead:.2%} fewer of the objectives on the requests that were held out."


def _losers(chosen: PredictedAttainment, other: PredictedAttainment) -> Iterator[str]:
    """Names the models that lose most requests."""
    kept = {each.model: each for each in chosen.models}
    lost = {
        each.model: (kept[each.model].attainment - each.attainment) * each.num_requests
        for each in other.models
        if each.model in kept
    }
    worst = sorted((name for name in lost if lost[name] >= 1), key=lambda name: -lost[name])[:_MOST_NAMED]
    if worst:
        now = {each.model: each.attainment for each in other.models}
        told = ", ".join(f"{name} ({kept[name].attainment:.1%} to {now[name]:.1%})" for name in worst)
        yield f"It loses most on {told}."


def _saturated(placement: Placement, other: PredictedAttainment) -> Iterator[str]:
    busiest = sorted(range(len(other.utilisation)), key=lambda number: -other.utilisation[number])
    named = [number for number in busiest if other.utilisation[number] >= _SATURATED][:_MOST_NAMED]
    for number in named:
        group = placement.groups[number]
        yield (
            f"Group {number} ({group.shape}: {', '.join(group.models)}) is saturated, with its devices busy "
            f"{other.utilisation[number]:.0%} of the time."
        )
    if not named and busiest and other.attainment < 1:
        number = busiest[0]
        why = "bursts find their group's devices busy while others idle" if len(busiest) > 1 else "bursts overtax it"
        yield f"No group is saturated on average (group {number} is busiest, {other.utilisation[number]:.0%}): {why}."


def _unplaced(problem: PlacementProblem, placement: Placement) -> Iterator[str]:
    placed = {name for group in placement.groups for name in group.models}
    left = [model.name for model in problem.models if model.name not in placed]
    if left:
        more = f" and {len(left) - _MOST_NAMED} more" if len(left) > _MOST_NAMED else ""
        yield f"It leaves out {', '.join(left[:_MOST_NAMED])}{more}."
