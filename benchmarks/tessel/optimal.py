"""Figures 3 and 9 to 12: time-optimal schedules, search time, and bubbles over N_R and over memory."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from benchmarks.figure import panels, save
from benchmarks.tessel.row import Row, certified, timed
from benchmarks.tessel.table2 import SHAPES
from headway.core.errors import FailedPreconditionError
from headway.core.pipeline_shapes import ShapeOptions, named_placement
from headway.core.schedule import TaskPlacement
from headway.planner.schedule.completion import complete
from headway.planner.schedule.kernels import Limits, search_kernel
from headway.planner.schedule.problem import make_problem
from headway.planner.schedule.repetend import Effort

_COUNTS = range(2, 7)
_REPETENDS = range(1, 9)


def figure_3() -> Row:
    found, cpu_s = timed(partial(certified, named_placement("V", 4, ShapeOptions(backward=2)), 16, method="optimal"))
    return Row(
        part="figure 3",
        case="V, forward 1, backward 2, 16 micro-batches, time-optimal",
        found=f"makespan {found.schedule.makespan:g}, bound {found.bound:g}",
        target="proven, under 1 s; the paper 3752 s",
        cpu_s=cpu_s,
        is_met=found.schedule.makespan <= found.bound and cpu_s < 1,
    )


def figure_9_and_10() -> Iterator[Row]:
    """Search time over micro-batches beside TO, its parts, and that the makespans are equal."""
    figure, axes = panels(*SHAPES[:3], *SHAPES[3:])
    for each, shape in zip(axes, SHAPES, strict=True):
        placement = named_placement(shape, 4, ShapeOptions())
        ours_s, theirs_s = [], []
        for count in _COUNTS:
            ours, cpu_s = timed(partial(certified, placement, count))
            best, to_s = timed(partial(certified, placement, count, Limits(effort=0.005), method="optimal"))
            ours_s.append(cpu_s)
            theirs_s.append(to_s)
            proven = best.schedule.makespan <= best.bound * (1 + 1e-9)
            yield Row(
                part="figure 9",
                case=f"{shape}, {count} micro-batches",
                found=f"bubble {ours.schedule.bubble_of_makespan:.1%}, TO {best.schedule.bubble_of_makespan:.1%}"
                f"{'' if proven else ' (not proven)'} in {to_s:.2f} s",
                target="equal",
                cpu_s=cpu_s,
                is_met=ours.schedule.makespan <= best.schedule.makespan * (1 + 1e-9),
            )
        each.plot(_COUNTS, ours_s, marker="o", label="Tessel")
        each.plot(_COUNTS, theirs_s, marker="s", label="TO")
        each.set_yscale("log")
        each.set_xlabel("micro-batches")
    axes[0].set_ylabel("search, CPU s")
    axes[0].legend()
    save(figure, "tessel-search-time")
    for shape in SHAPES:
        problem = make_problem(named_placement(shape, 4, ShapeOptions()))
        found, repetend_s = timed(partial(search_kernel, problem, Limits()))
        _, completion_s = timed(partial(complete, problem, found.kernel, effort=Effort(units=0.1)))
        yield Row(
            part="figure 10",
            case=shape,
            found=f"repetend {repetend_s:.3f} s, warm-up and cool-down {completion_s:.3f} s",
            cpu_s=repetend_s + completion_s,
        )


def figure_11_and_12() -> Iterator[Row]:
    """The bubble over the micro-batches of a repetend, and over memory."""
    figure, (left, right) = panels("figure 11", "figure 12")
    for shape in SHAPES:
        placement = named_placement(shape, 4, ShapeOptions())
        by_count = [_bubble(placement, Limits(proves=True, most_repetend=most)) for most in _REPETENDS]
        by_memory = [_bubble(replace(placement, memory=most), Limits()) for most in _REPETENDS]
        left.plot(_REPETENDS, _drawn(by_count), marker="o", label=shape)
        right.plot(_REPETENDS, _drawn(by_memory), marker="o", label=shape)
        for part, bubbles in (("figure 11", by_count), ("figure 12", by_memory)):
            told = ", ".join("-" if each is None else f"{each:.0%}" for each in bubbles)
            yield Row(
                part=part,
                case=f"{shape}, 1 to {max(_REPETENDS)}",
                found=told,
                target="falls to 0",
                is_met=bubbles[-1] == 0 and _falls(bubbles),
            )
    left.set_xlabel("N_R")
    left.set_ylabel("bubble rate")
    right.set_xlabel("memory")
    right.legend()
    save(figure, "tessel-bubbles")


def _bubble(placement: TaskPlacement, limits: Limits) -> float | None:
    try:
        problem = make_problem(placement)
        return 1 - problem.lower_bound / search_kernel(problem, limits).kernel.period
    except FailedPreconditionError:
        return None


def _falls(bubbles: list[float | None]) -> bool:
    known = [each for each in bubbles if each is not None]
    return known == sorted(known, reverse=True)


def _drawn(bubbles: list[float | None]) -> list[float]:
    """With a gap where there is none."""
    return [float("nan") if each is None else each for each in bubbles]
