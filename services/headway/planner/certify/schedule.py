"""Checks pipeline schedules, repetends and the programs of devices against their placement."""

from collections import Counter
from collections.abc import Iterator, Sequence

from headway.core.schedule import DeviceProgram, Placement, Repetend, Run, Schedule, Transfer

_RELATIVE = 1e-6
"""What rounding may add up to, of the makespan or of the memory."""


def find_schedule_violations(schedule: Schedule, *, memory: float | None = None) -> list[str]:
    """Lists the rules of equation (1) that a schedule breaks, a sentence each; empty for a valid one.

    Args:
        memory: of each device; None for as much as the placement says.
    """
    if broken := list(_coverage(schedule)):
        return broken
    bound = schedule.placement.memory if memory is None else memory
    return [*_overlaps(schedule), *_dependencies(schedule), *([] if bound is None else _memory(schedule, bound))]


def find_repetend_violations(placement: Placement, repetend: Repetend, *, memory: float | None = None) -> list[str]:
    """Lists what keeps a repetend from being repeated for ever; empty for a valid one."""
    if len(repetend.starts) != len(placement.tasks) or len(repetend.indices) != len(placement.tasks):
        return ["The repetend does not have each task once."]
    slack = _RELATIVE * repetend.period
    found = []
    for device, on in enumerate(placement.tasks_by_device):
        order = sorted(on, key=lambda i: repetend.starts[i])
        starts = [repetend.starts[i] for i in order]
        after = [*starts[1:], starts[0] + repetend.period] if starts else []
        for i, start, following in zip(order, starts, after, strict=True):
            if start + placement.tasks[i].time > following + slack:
                found.append(f"Device {device}: {placement.tasks[i].name} has not ended when the next task starts.")
        if memory is not None:
            held = sum(repetend.indices[i] * placement.tasks[i].memory for i in on)
            for i in order:
                held += placement.tasks[i].memory
                if held > memory + _RELATIVE * abs(memory):
                    found.append(f"Device {device} holds {held:g} of {memory:g} once {placement.tasks[i].name} starts.")
    for each in placement.dependencies:
        before, after_task = placement.tasks[each.before], placement.tasks[each.after]
        ahead = repetend.indices[each.before] - repetend.indices[each.after]
        ready = repetend.starts[each.before] + before.time + each.lag - ahead * repetend.period
        if ready > repetend.starts[each.after] + slack:
            found.append(f"{after_task.name} starts before {before.name} of its micro-batch is there.")
    return found


def find_program_violations(schedule: Schedule, programs: Sequence[DeviceProgram]) -> list[str]:
    """Lists what is wrong with the order in which devices run tasks and communicate; empty for a right one.

    Transfers do not block, and those between two devices are matched by their order.
    """
    if [program.device for program in programs] != list(range(schedule.placement.num_devices)):
        return ["There is not one program for each device, in order."]
    found = []
    for program, runs in zip(programs, schedule.runs_by_device, strict=True):
        if [(step.run.task, step.run.micro_batch) for step in program.steps if step.run is not None] != [
            (run.task, run.micro_batch) for run in runs
        ]:
            found.append(f"Device {program.device} does not run its tasks in the schedule's order.")
    return found or [*_matching(programs), *_inputs(schedule, programs)] or list(_deadlocks(schedule, programs))


def _label(schedule: Schedule, task: int, micro_batch: int) -> str:
    return f"{schedule.placement.tasks[task].name} of micro-batch {micro_batch}"


def _coverage(schedule: Schedule) -> Iterator[str]:
    tasks = range(len(schedule.placement.tasks))
    seen = Counter((run.task, run.micro_batch) for run in schedule.runs)
    for task, micro_batch in sorted(seen):
        if task not in tasks or not 0 <= micro_batch < schedule.num_micro_batches:
            yield f"Task {task} of micro-batch {micro_batch} is not part of the work."
        elif seen[task, micro_batch] > 1:
            yield f"{_label(schedule, task, micro_batch)} runs {seen[task, micro_batch]} times."
    for micro_batch in range(schedule.num_micro_batches):
        for task in tasks:
            if (task, micro_batch) not in seen:
                yield f"{_label(schedule, task, micro_batch)} is missing."
    for run in schedule.runs:
        if not run.start >= 0:
            yield f"Task {run.task} of micro-batch {run.micro_batch} starts at {run.start}."


def _overlaps(schedule: Schedule) -> Iterator[str]:
    slack = _RELATIVE * schedule.makespan
    for device, runs in enumerate(schedule.runs_by_device):
        for run, following in zip(runs, runs[1:], strict=False):
            if schedule.end(run) > following.start + slack:
                first, second = (_label(schedule, each.task, each.micro_batch) for each in (run, following))
                yield f"Device {device}: {second} starts at {following.start:g}, before {first} ends."


def _dependencies(schedule: Schedule) -> Iterator[str]:
    slack = _RELATIVE * schedule.makespan
    run_of = {(run.task, run.micro_batch): run for run in schedule.runs}
    for each in schedule.placement.dependencies:
        for micro_batch in range(schedule.num_micro_batches):
            before, after = run_of[each.before, micro_batch], run_of[each.after, micro_batch]
            if schedule.end(before) + each.lag > after.start + slack:
                first, second = _label(schedule, each.before, micro_batch), _label(schedule, each.after, micro_batch)
                yield f"{second} starts at {after.start:g}, before the result of {first} is there."


def _memory(schedule: Schedule, bound: float) -> Iterator[str]:
    for device, runs in enumerate(schedule.runs_by_device):
        for run, held in zip(runs, schedule.memory_after_starts(device), strict=True):
            if held > bound + _RELATIVE * abs(bound):
                yield f"Device {device} holds {held:g} of {bound:g} in {_label(schedule, run.task, run.micro_batch)}."
                break


def _matching(programs: Sequence[DeviceProgram]) -> Iterator[str]:
    """Between two devices, sends and receives are in the same order."""
    sides: dict[tuple[int, int], tuple[list[Transfer], list[Transfer]]] = {}
    for program in programs:
        for step in program.steps:
            if (transfer := step.transfer) is not None:
                side = 0 if transfer.source == program.device else 1
                sides.setdefault((transfer.source, transfer.target), ([], []))[side].append(transfer)
    for (source, target), (sent, received) in sorted(sides.items()):
        if sent != received:
            yield f"Device {source} sends to {target} in another order than that receives."


def _inputs(schedule: Schedule, programs: Sequence[DeviceProgram]) -> Iterator[str]:
    """A result is sent after it was made, and a task runs after what it needs was received."""
    tasks = schedule.placement.tasks
    for program in programs:
        made: set[tuple[int, int]] = set()
        received: set[tuple[int, int, int]] = set()
        for step in program.steps:
            if (transfer := step.transfer) is not None and transfer.target == program.device:
                received.add((transfer.before, transfer.after, transfer.micro_batch))
            elif transfer is not None and (transfer.before, transfer.micro_batch) not in made:
                what = _label(schedule, transfer.before, transfer.micro_batch)
                yield f"Device {program.device} sends the result of {what} before it has it."
            if (run := step.run) is None:
                continue
            made.add((run.task, run.micro_batch))
            for each in schedule.placement.dependencies:
                is_here = program.device in tasks[each.before].devices
                if each.after == run.task and not is_here and (each.before, run.task, run.micro_batch) not in received:
                    what = _label(schedule, run.task, run.micro_batch)
                    yield f"Device {program.device} runs {what} before it starts to receive what that needs."


def _deadlocks(schedule: Schedule, programs: Sequence[DeviceProgram]) -> Iterator[str]:
    """Runs all programs at once: a task waits for its inputs, and for all of its devices."""
    place = [0] * len(programs)
    sent: set[Transfer] = set()
    waits_for = _received(programs)

    def can_run(run: Run) -> bool:
        for device in schedule.placement.tasks[run.task].devices:
            steps = programs[device].steps
            if place[device] >= len(steps) or steps[place[device]].run != run:
                return False
            if not sent.issuperset(waits_for.get((device, run.task, run.micro_batch), ())):
                return False
        return True

    def advance(device: int) -> bool:
        if place[device] >= len(programs[device].steps):
            return False
        step = programs[device].steps[place[device]]
        if step.run is not None:
            if not can_run(step.run):
                return False
            for other in schedule.placement.tasks[step.run.task].devices:
                place[other] += 1
            return True
        if step.transfer is not None and step.transfer.source == device:
            sent.add(step.transfer)
        place[device] += 1
        return True

    while any([advance(device) for device in range(len(programs))]):  # a list: all of them are tried
        pass
    for program in programs:
        if place[program.device] < len(program.steps):
            yield f"Device {program.device} waits for ever at its step {place[program.device]}."


def _received(programs: Sequence[DeviceProgram]) -> dict[tuple[int, int, int], set[Transfer]]:
    """What a task of a micro-batch waits for, by device, task and micro-batch."""
    found: dict[tuple[int, int, int], set[Transfer]] = {}
    for program in programs:
        for step in program.steps:
            if (transfer := step.transfer) is not None and transfer.target == program.device:
                found.setdefault((program.device, transfer.after, transfer.micro_batch), set()).add(transfer)
    return found
