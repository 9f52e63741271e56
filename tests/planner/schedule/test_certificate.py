"""The certifier lets right schedules through, and finds what is wrong with mutants of them."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from headway.core.pipeline_shapes import ShapeOptions, named_placement
from headway.core.schedule import DeviceProgram, DeviceStep, Run, Schedule
from headway.planner.certify.schedule import find_repetend_violations, find_schedule_violations
from headway.planner.certify.schedule_programs import find_program_violations
from headway.planner.schedule.communication import device_programs
from headway.planner.schedule.kernels import Limits
from headway.planner.schedule.search import Searched, search_schedule

SHAPES = ("V", "X", "K", "M", "NN")


@pytest.fixture(scope="module")
def found() -> dict[str, Searched]:
    return {name: search_schedule(named_placement(name, 4, ShapeOptions()), 8, Limits()) for name in SHAPES}


def _with(schedule: Schedule, old: Run, new: Run) -> Schedule:
    return replace(schedule, runs=tuple(sorted(new if run == old else run for run in schedule.runs)))


def _within(schedule: Schedule, memory: Sequence[float]) -> Schedule:
    return replace(schedule, placement=replace(schedule.placement, memory=tuple(memory)))


def _overlap(schedule: Schedule, rng: random.Random) -> Schedule:
    runs = rng.choice(schedule.runs_by_device)
    place = rng.randrange(1, len(runs))
    return _with(schedule, runs[place], replace(runs[place], start=runs[place - 1].start))


def _early(schedule: Schedule, rng: random.Random) -> Schedule:
    """A task that starts with the one that it needs."""
    each = rng.choice(schedule.placement.dependencies)
    micro_batch = rng.randrange(schedule.num_micro_batches)
    before = next(run for run in schedule.runs if (run.task, run.micro_batch) == (each.before, micro_batch))
    after = next(run for run in schedule.runs if (run.task, run.micro_batch) == (each.after, micro_batch))
    return _with(schedule, after, replace(after, start=before.start))


def _missing(schedule: Schedule, rng: random.Random) -> Schedule:
    runs = list(schedule.runs)
    runs.pop(rng.randrange(len(runs)))
    return replace(schedule, runs=tuple(runs))


def _twice(schedule: Schedule, rng: random.Random) -> Schedule:
    return replace(schedule, runs=tuple(sorted((*schedule.runs, rng.choice(schedule.runs)))))


def _foreign(schedule: Schedule, rng: random.Random) -> Schedule:
    run = rng.choice(schedule.runs)
    return _with(schedule, run, replace(run, micro_batch=schedule.num_micro_batches))


def _negative(schedule: Schedule, rng: random.Random) -> Schedule:
    return replace(schedule, runs=tuple(replace(run, start=run.start - 1) for run in schedule.runs))


MUTANTS: dict[str, Callable[[Schedule, random.Random], Schedule]] = {
    "overlap": _overlap,
    "early": _early,
    "missing": _missing,
    "twice": _twice,
    "foreign": _foreign,
    "negative": _negative,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_what_was_found_is_valid(found: dict[str, Searched], shape: str) -> None:
    schedule, repetend = found[shape].schedule, found[shape].repetend
    assert repetend is not None
    assert find_schedule_violations(_within(schedule, schedule.peak_memory)) == []
    assert find_program_violations(schedule, device_programs(schedule)) == []
    assert find_repetend_violations(schedule.placement, repetend) == []


@pytest.mark.parametrize("mutate", MUTANTS.values(), ids=MUTANTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_mutants_are_rejected(
    found: dict[str, Searched], shape: str, mutate: Callable[[Schedule, random.Random], Schedule]
) -> None:
    for seed in range(10):
        assert find_schedule_violations(mutate(found[shape].schedule, random.Random(seed))) != [], seed


@pytest.mark.parametrize("shape", SHAPES)
def test_too_little_memory_is_rejected(found: dict[str, Searched], shape: str) -> None:
    schedule = found[shape].schedule
    for device, peak in enumerate(schedule.peak_memory):
        less = [peak - 1 if each == device else peak for each, peak in enumerate(schedule.peak_memory)]
        [fault] = find_schedule_violations(_within(schedule, less))
        assert fault.startswith(f"Device {device} holds {peak:g} of {peak - 1:g}")


@pytest.mark.parametrize("shape", SHAPES)
def test_a_repetend_with_a_shorter_period_or_other_indices_is_rejected(found: dict[str, Searched], shape: str) -> None:
    placement, repetend = found[shape].schedule.placement, found[shape].repetend
    assert repetend is not None
    assert find_repetend_violations(placement, replace(repetend, period=repetend.period - 1)) != []
    for each in placement.dependencies:
        indices = list(repetend.indices)
        indices[each.after] = indices[each.before] + 1
        assert find_repetend_violations(placement, replace(repetend, indices=tuple(indices))) != []


def _transfers(program: DeviceProgram) -> list[int]:
    return [place for place, step in enumerate(program.steps) if step.transfer is not None]


def _replaced(programs: list[DeviceProgram], device: int, steps: list[DeviceStep]) -> list[DeviceProgram]:
    return [replace(each, steps=tuple(steps)) if each.device == device else each for each in programs]


@pytest.mark.parametrize("shape", ["V", "X", "K"])
def test_a_wrong_order_of_communication_is_rejected(found: dict[str, Searched], shape: str) -> None:
    schedule = found[shape].schedule
    programs = list(device_programs(schedule))
    rng = random.Random(0)
    for program in programs:
        places = _transfers(program)
        one = rng.choice(places)
        steps = list(program.steps)
        of_pair = [
            place
            for place in places
            if (other := steps[place].transfer) is not None
            and (mine := steps[one].transfer) is not None
            and (other.source, other.target) == (mine.source, mine.target)
            and place != one
        ]
        other = rng.choice(of_pair)
        swapped = list(steps)
        swapped[one], swapped[other] = steps[other], steps[one]
        assert find_program_violations(schedule, _replaced(programs, program.device, swapped)) != []
        without = [step for place, step in enumerate(steps) if place != one]
        assert find_program_violations(schedule, _replaced(programs, program.device, without)) != []
        assert find_program_violations(schedule, _replaced(programs, program.device, steps[::-1])) != []


def test_tasks_in_two_orders_on_their_devices_wait_for_ever() -> None:
    schedule = search_schedule(named_placement("M", 2, ShapeOptions(is_training=False)), 2, Limits()).schedule
    programs = list(device_programs(schedule))
    runs = [step for step in programs[0].steps if step.run is not None]
    moved = [*programs[0].steps]
    first, second = moved.index(runs[0]), moved.index(runs[1])
    moved[first], moved[second] = moved[second], moved[first]
    assert find_program_violations(schedule, _replaced(programs, 0, moved)) != []
