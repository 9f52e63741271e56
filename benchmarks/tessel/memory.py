"""Zero-bubble schedules with half the memory of 1F1B, where V-Half needs more."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from benchmarks.tessel.row import Row, certified, timed
from headway.core.pipeline_shapes import ShapeOptions, named_placement

_V_HALF = {4: 3, 8: 5}


def memory_rows() -> Iterator[Row]:
    for num_devices, published in _V_HALF.items():
        shape = named_placement("zigzag", num_devices, ShapeOptions(backward=2, splits_backward=True))
        placement = replace(shape, memory=num_devices / 2)
        found, cpu_s = timed(partial(certified, placement, 4 * placement.num_devices))
        assert found.repetend is not None
        bubble = 1 - placement.lower_bound / found.repetend.period
        yield Row(
            part="memory",
            case=f"V with split backward, {num_devices} devices, {4 * num_devices} micro-batches",
            found=f"bubble {bubble:.1%} with {max(found.schedule.peak_memory):g} stage-activations of {num_devices}, "
            f"makespan {found.schedule.makespan:g} for work {placement.lower_bound * 4 * num_devices:g}",
            target=f"bubble 0 with {num_devices // 2}; V-Half publishes {published}",
            cpu_s=cpu_s,
            is_met=bubble == 0 and max(found.schedule.peak_memory) <= num_devices / 2,
        )
