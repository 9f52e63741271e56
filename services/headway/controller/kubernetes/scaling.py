"""How many cells a pool should have, by what is asked of the models and what plans promise. Pure.

It grows where a model misses its objective or is nearly full, to the smallest number of cells on which the planner
sees room for what is asked; it shrinks by one where the plan without a cell has room for the most that was asked for a
while. What is not known is no reason for either.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from headway.controller.kubernetes.demand import Demand, Knowledge, ModelDemand

_SLACK = 0.8
"""Of the load that a pool grows at: one that shrinks has to stay below it, or it would grow again."""

Foresee = Callable[[int], Awaitable[Mapping[str, int] | None]]
"""With so many cells, how many requests of each model run at once within its objective; None where no plan has all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPolicy:
    """When and how far a pool is scaled.

    Attributes:
        target_attainment: the least share of requests that is to meet its SLO.
        target_load: the most requests at once, as a share of those that the plan has room for.
        window_s: that passes after a change before the next, and over which attainment is measured.
        cooldown_s: that passes after a change before the pool shrinks.
        is_dry_run: whether decisions are only told.
    """

    min_cells: int
    max_cells: int
    target_attainment: float = 0.99
    target_load: float = 0.8
    window_s: float = 60.0
    cooldown_s: float = 300.0
    is_dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingDecision:
    """How many cells there should be, and why, in one word and in a sentence."""

    num_cells: int
    reason: str
    message: str = ""


async def decide(
    policy: ScalingPolicy,
    demand: Demand,
    *,
    num_cells: int,
    is_settled: bool,
    since_change_s: float,
    foresee: Foresee,
) -> ScalingDecision:
    """The decision for a pool.

    Args:
        num_cells: that are wanted now.
        is_settled: whether all cells that are wanted are there, and have loaded what the plan gives them.
        since_change_s: since another number was wanted.

    Raises:
        HeadwayError: of the planner, which may pass by itself.
    """
    bounded = min(max(num_cells, policy.min_cells), policy.max_cells)
    if bounded != num_cells:
        return ScalingDecision(num_cells=bounded, reason="OutOfBounds", message=f"{num_cells} cells are out of bounds")
    if demand.knowledge is not Knowledge.KNOWN:
        told = "nothing is known yet" if demand.knowledge is Knowledge.UNKNOWN else "what is known is too old"
        return ScalingDecision(num_cells=num_cells, reason=demand.knowledge, message=f"{told}: the cells stay")
    if not is_settled or since_change_s < policy.window_s:
        return ScalingDecision(num_cells=num_cells, reason="Settling", message="the last change is still under way")
    now = await foresee(num_cells)
    if now is None:
        return ScalingDecision(num_cells=num_cells, reason="NoPlan", message="there is no plan for all models")
    planned = {name: each for name, each in demand.models.items() if name in now}
    suffering = {name: each for name, each in planned.items() if _why_more(policy, each, now[name])}
    if suffering:
        return await _grow(policy, suffering, num_cells=num_cells, now=now, foresee=foresee)
    watched_s = min(since_change_s, demand.watched_s)
    return await _shrink(policy, planned, num_cells=num_cells, watched_s=watched_s, foresee=foresee)


def _why_more(policy: ScalingPolicy, demand: ModelDemand, capacity: int) -> str:
    """Why a model needs more; empty where it does not."""
    if demand.attainment is not None and demand.attainment < policy.target_attainment:
        return f"{demand.attainment:.1%} of its requests met their SLO"
    if demand.num_present > policy.target_load * capacity:
        return f"{demand.num_present} requests at once, with room for {capacity}"
    return ""


async def _grow(
    policy: ScalingPolicy,
    suffering: Mapping[str, ModelDemand],
    *,
    num_cells: int,
    now: Mapping[str, int],
    foresee: Foresee,
) -> ScalingDecision:
    """To where all that suffer have room, at most twice as far; else to where most has been gained."""
    why = "; ".join(f"{name}: {_why_more(policy, each, now.get(name, 0))}" for name, each in suffering.items())
    if num_cells >= policy.max_cells:
        return ScalingDecision(num_cells=num_cells, reason="AtMaximum", message=why)
    best, best_room = num_cells, _room(policy, suffering, now)
    for more in range(num_cells + 1, min(policy.max_cells, 2 * max(1, num_cells)) + 1):
        then = await foresee(more)
        if then is None or not any(then.get(name, 0) > now.get(name, 0) for name in suffering):
            continue
        if (room := _room(policy, suffering, then)) > best_room or best == num_cells:
            best, best_room = more, room
        if room >= 1:
            break
    if best == num_cells:
        told = f"{why}; the planner sees no more room for it with more cells"
        return ScalingDecision(num_cells=num_cells, reason="MoreCellsDoNotHelp", message=told)
    return ScalingDecision(num_cells=best, reason="DemandNotMet", message=why)


async def _shrink(
    policy: ScalingPolicy, demands: Mapping[str, ModelDemand], *, num_cells: int, watched_s: float, foresee: Foresee
) -> ScalingDecision:
    if num_cells <= policy.min_cells:
        return ScalingDecision(num_cells=num_cells, reason="AtMinimum")
    if watched_s < policy.cooldown_s:
        return ScalingDecision(num_cells=num_cells, reason="CoolingDown")
    then = await foresee(num_cells - 1)
    if then is None:
        told = "one less does not hold the models"
        return ScalingDecision(num_cells=num_cells, reason="NeededForModels", message=told)
    most = _SLACK * policy.target_load
    full = [name for name, each in demands.items() if each.num_peak > most * then.get(name, 0)]
    if full:
        return ScalingDecision(num_cells=num_cells, reason="DemandMet", message=f"{', '.join(full)} needs the room")
    return ScalingDecision(num_cells=num_cells - 1, reason="DemandMetByLess", message="one less has room for all")


def _room(policy: ScalingPolicy, suffering: Mapping[str, ModelDemand], capacity: Mapping[str, int]) -> float:
    """How much of what those that suffer need there is, of the one that lacks most; 1 is enough."""
    rooms = (
        policy.target_load * capacity.get(name, 0) / each.num_present if each.num_present else 1.0
        for name, each in suffering.items()
    )
    return min(1.0, *rooms, 1.0)
