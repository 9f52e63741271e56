"""Sends and receives between the tasks of a schedule: section IV-D of the paper."""

from headway.core.schedule import Dependency, DeviceProgram, DeviceStep, Schedule, TaskPlacement, Transfer


def device_programs(schedule: Schedule) -> tuple[DeviceProgram, ...]:
    """Gives each device its order of tasks and transfers.

    Tasks are sorted by their start, which is a topological order; a send and its receive, as one, come right after the
    task whose result they carry, so that all devices see transfers in one order. Neither blocks.
    """
    placement = schedule.placement
    steps: list[list[DeviceStep]] = [[] for _ in range(placement.num_devices)]
    users: dict[int, list[Dependency]] = {}
    for each in placement.dependencies:
        users.setdefault(each.before, []).append(each)
    for run in sorted(schedule.runs):
        for device in placement.tasks[run.task].devices:
            steps[device].append(DeviceStep(run=run))
        for each in users.get(run.task, ()):
            for transfer in _transfers(placement, each, run.micro_batch):
                steps[transfer.source].append(DeviceStep(transfer=transfer))
                steps[transfer.target].append(DeviceStep(transfer=transfer))
    return tuple(DeviceProgram(device=device, steps=tuple(each)) for device, each in enumerate(steps))


def program_lines(placement: TaskPlacement, program: DeviceProgram) -> tuple[str, ...]:
    """A line for each step: 'F0 3' runs the task for micro-batch 3, 'send F0 3 to 1' and 'receive F0 3 from 0' carry
    its result."""
    lines = []
    for step in program.steps:
        if step.run is not None:
            lines.append(f"{placement.tasks[step.run.task].name} {step.run.micro_batch}")
        elif (transfer := step.transfer) is not None:
            what = f"{placement.tasks[transfer.before].name} {transfer.micro_batch}"
            is_sent = transfer.source == program.device
            lines.append(f"send {what} to {transfer.target}" if is_sent else f"receive {what} from {transfer.source}")
    return tuple(lines)


def _transfers(placement: TaskPlacement, dependency: Dependency, micro_batch: int) -> list[Transfer]:
    """One for each device that has no part in making the input; several sources share them."""
    sources = placement.tasks[dependency.before].devices
    targets = [device for device in placement.tasks[dependency.after].devices if device not in sources]
    return [
        Transfer(
            before=dependency.before,
            after=dependency.after,
            micro_batch=micro_batch,
            source=sources[number % len(sources)],
            target=target,
        )
        for number, target in enumerate(targets)
    ]
