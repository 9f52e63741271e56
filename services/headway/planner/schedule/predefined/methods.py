"""The published schedules by name. A new one is a line here."""

from collections.abc import Callable

from headway.core.errors import InvalidArgumentError
from headway.core.schedule import Schedule, TaskPlacement
from headway.planner.schedule.predefined.orders import (
    dualpipe_v,
    gpipe,
    interleaved_1f1b,
    one_f_one_b,
    v_half,
    v_min,
    zb_v,
)
from headway.planner.schedule.predefined.zero_bubble import zb_h1, zb_h2

_METHODS: dict[str, Callable[[TaskPlacement, int], Schedule]] = {
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "interleaved-1f1b": interleaved_1f1b,
    "zb-h1": zb_h1,
    "zb-h2": zb_h2,
    "zb-v": zb_v,
    "dualpipe-v": dualpipe_v,
    "v-half": v_half,
    "v-min": v_min,
}


def predefined_methods() -> tuple[str, ...]:
    """The names of those that are orders, not searched."""
    return tuple(_METHODS)


def predefined(method: str, placement: TaskPlacement, num_micro_batches: int) -> Schedule:
    """Makes a schedule; InvalidArgumentError where the method is not for this placement."""
    return _METHODS[method](placement, num_micro_batches)


def one_direction_units(method: str, placement: TaskPlacement) -> int:
    """The micro-batches of a repetend of '1f1b+' or 'chimera-direct'.

    1F1B has as many micro-batches under way as there are devices, Chimera's unit half as many in either direction;
    with so many, the paper's table II has both on placements that they were not made for.
    """
    if method == "1f1b+":
        return placement.num_devices
    if placement.num_devices < 2:
        raise InvalidArgumentError("chimera-direct needs two devices or more.")
    return placement.num_devices // 2
