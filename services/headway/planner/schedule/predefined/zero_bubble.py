"""ZB-H1 and ZB-H2: one stage on each device, and gradients of weights where nothing else can run."""

from headway.core.errors import InvalidArgumentError
from headway.core.schedule import Schedule, TaskPlacement
from headway.core.stage_chain import stage_chain
from headway.planner.schedule.predefined.listing import Rule, list_schedule


def zb_h1(placement: TaskPlacement, num_micro_batches: int) -> Schedule:
    """Holds no more than 1F1B's first device does, on any device."""
    p = placement.num_devices
    return _scheduled(placement, num_micro_batches, [p - d for d in range(p)], most=p, method="zb-h1")


def zb_h2(placement: TaskPlacement, num_micro_batches: int) -> Schedule:
    """Starts with twice as many forward tasks, so that no device waits where all tasks take the same time."""
    p = placement.num_devices
    ahead = [2 * (p - d) - 1 for d in range(p)]
    return _scheduled(placement, num_micro_batches, ahead, most=2 * p - 1, method="zb-h2")


def _scheduled(
    placement: TaskPlacement, num_micro_batches: int, ahead: list[int], *, most: int, method: str
) -> Schedule:
    """Args:
    ahead: of each device: forward tasks without their gradient of the input.
    most: of any device: forward tasks without their gradient of the weights.
    """
    stages = stage_chain(placement)
    if [stage.device for stage in stages] != [*range(placement.num_devices)] or stages[0].weight is None:
        raise InvalidArgumentError(f"{method} needs one stage on each device, with split gradients.")
    ranks = [0] * len(placement.tasks)
    limits: list[tuple[tuple[int, int], ...]] = [()] * len(placement.tasks)
    for stage in stages:
        assert stage.input is not None
        assert stage.weight is not None
        ranks[stage.input], ranks[stage.forward], ranks[stage.weight] = 0, 1, 2
        limits[stage.forward] = ((stage.input, ahead[stage.device]), (stage.weight, most))
    rule = Rule(ranks=tuple(ranks), limits=tuple(limits))
    made = list_schedule(placement, num_micro_batches, rule, method=method)
    if made is None:
        raise InvalidArgumentError(f"{method} does not fit the memory.")
    return made
