"""Checks the programs of devices: the order of tasks, sends and receives."""

from collections.abc import Iterator, Sequence

from headway.core.schedule import DeviceProgram, Run, Schedule, Transfer
from headway.planner.certify.schedule import task_label


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
    return found or [*_matching(programs), *_inputs(schedule, programs)] or list(_Replay(schedule, programs).stuck())


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
                what = task_label(schedule, transfer.before, transfer.micro_batch)
                yield f"Device {program.device} sends the result of {what} before it has it."
            if (run := step.run) is None:
                continue
            made.add((run.task, run.micro_batch))
            for each in schedule.placement.dependencies:
                is_here = program.device in tasks[each.before].devices
                if each.after == run.task and not is_here and (each.before, run.task, run.micro_batch) not in received:
                    what = task_label(schedule, run.task, run.micro_batch)
                    yield f"Device {program.device} runs {what} before it starts to receive what that needs."


class _Replay:
    """Runs all programs at once: a task waits for its inputs, and for all of its devices."""

    def __init__(self, schedule: Schedule, programs: Sequence[DeviceProgram]) -> None:
        self._schedule, self._programs = schedule, programs
        self._place = [0] * len(programs)
        self._sent: set[Transfer] = set()
        self._waits_for: dict[tuple[int, int, int], set[Transfer]] = {}
        for program in programs:
            for step in program.steps:
                if (transfer := step.transfer) is not None and transfer.target == program.device:
                    key = (program.device, transfer.after, transfer.micro_batch)
                    self._waits_for.setdefault(key, set()).add(transfer)

    def stuck(self) -> Iterator[str]:
        """The devices that do not come to their end."""
        devices = range(len(self._programs))
        while sum(self._advance(device) for device in devices):
            pass
        for device in devices:
            if self._place[device] < len(self._programs[device].steps):
                yield f"Device {device} waits for ever at its step {self._place[device]}."

    def _advance(self, device: int) -> bool:
        steps = self._programs[device].steps
        if self._place[device] >= len(steps):
            return False
        step = steps[self._place[device]]
        moving: tuple[int, ...] = (device,)
        if step.run is not None:
            if not self._can_run(step.run):
                return False
            moving = self._schedule.placement.tasks[step.run.task].devices
        elif step.transfer is not None and step.transfer.source == device:
            self._sent.add(step.transfer)
        for each in moving:
            self._place[each] += 1
        return True

    def _can_run(self, run: Run) -> bool:
        """Whether all devices of a task have come to it, and what they received for it was sent."""
        for device in self._schedule.placement.tasks[run.task].devices:
            steps, place = self._programs[device].steps, self._place[device]
            if place >= len(steps) or steps[place].run != run:
                return False
            if not self._sent.issuperset(self._waits_for.get((device, run.task, run.micro_batch), ())):
                return False
        return True
