"""Zero-bubble schedules with half the memory of 1F1B, where V-Half needs more; and with as much as V-Half has."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from benchmarks.tessel.row import Row, certified, timed
from headway.core.pipeline_shapes import ShapeOptions, named_placement

_V_HALF = {4: (3, 101), 8: (5, 209)}
"""By devices the stage-activations that V-Half holds, and the makespan that its authors' generator gives it for four
micro-batches a device."""


def memory_rows() -> Iterator[Row]:
    for num_devices, (held, published) in _V_HALF.items():
        count = 4 * num_devices
        shape = named_placement("zigzag", num_devices, ShapeOptions(backward=2, splits_backward=True))
        own = certified(shape, count, method="v-half").schedule
        yield Row(
            part="memory",
            case=f"V-Half, {num_devices} devices, {count} micro-batches",
            found=f"{max(own.peak_memory):g} stage-activations, makespan {own.makespan:g}",
            target=f"its authors' generator: {held}, {published}",
            is_met=max(own.peak_memory) <= held and own.makespan <= published,
        )
        for memory in (num_devices // 2, held):
            placement = replace(shape, memory=float(memory))
            found, cpu_s = timed(partial(certified, placement, count))
            assert found.repetend is not None
            bubble = 1 - placement.lower_bound / found.repetend.period
            peak, makespan = max(found.schedule.peak_memory), found.schedule.makespan
            yield Row(
                part="memory",
                case=f"V with split backward, {num_devices} devices, {count} micro-batches, memory {memory}",
                found=f"bubble {bubble:.1%} with {peak:g} stage-activations of {num_devices}, makespan {makespan:g} "
                f"for work {placement.lower_bound * count:g}; V-Half with {held}: {published}",
                target="bubble 0" if memory < held else "bubble 0, no longer than V-Half",
                cpu_s=cpu_s,
                is_met=bubble == 0 and peak <= memory and (memory < held or makespan <= published),
            )
