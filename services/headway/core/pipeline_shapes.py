"""Named placements of pipeline tasks, with any number of devices: figures 1 and 8 of the paper, and interleaved."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from headway.core.errors import InvalidArgumentError
from headway.core.schedule import Dependency, Task, TaskKind, TaskPlacement


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeOptions:
    """Attributes:
    forward, backward: times of a stage's passes; tasks on all devices take `shared` for either.
    chunks: stages on each device, of 'interleaved' and 'zigzag'.
    splits_backward: whether the gradients of inputs and weights are tasks of their own, half of `backward` each.
    lag: for communication between dependent tasks on different devices.
    is_training: else there are forward tasks only, which hold nothing.
    """

    forward: float = 1.0
    backward: float = 3.0
    shared: float = 1.0
    chunks: int = 2
    splits_backward: bool = False
    lag: float = 0.0
    is_training: bool = True


@dataclass(frozen=True, slots=True)
class _Stage:
    """A stage of the forward pass: its devices, what it keeps, and the stages that it needs."""

    devices: tuple[int, ...]
    memory: float
    needs: tuple[int, ...]


def named_placement(name: str, num_devices: int, options: ShapeOptions) -> TaskPlacement:
    """Makes a placement.

    Raises:
        InvalidArgumentError: there is none of that name, or not with so many devices.
    """
    if name not in SHAPES:
        raise InvalidArgumentError(
            f"There is no placement '{name}'.", hint=f"Name a file, or one of {', '.join(SHAPES)}.", field="placement"
        )
    least = 2 if name in ("K", "NN") else 1
    if num_devices < least or (name == "K" and num_devices % 2):
        even = "an even number of" if name == "K" else f"{least} or more"
        raise InvalidArgumentError(
            f"{name} does not go on {num_devices} devices.", hint=f"Give {even} devices.", field="devices"
        )
    stages = SHAPES[name](num_devices, options.chunks)
    tasks, dependencies = _with_backward(stages, options) if options.is_training else _forward_only(stages, options)
    made = TaskPlacement(name=name, num_devices=num_devices, tasks=tasks, dependencies=dependencies)
    return with_lag(made, options.lag)


def with_lag(placement: TaskPlacement, lag: float) -> TaskPlacement:
    """Adds a lag to each dependency of a task on devices that do not have its input."""
    tasks = placement.tasks
    return replace(
        placement,
        dependencies=tuple(
            replace(each, lag=each.lag if set(tasks[each.after].devices) <= set(tasks[each.before].devices) else lag)
            for each in placement.dependencies
        )
        if lag
        else placement.dependencies,
    )


def without_backward(placement: TaskPlacement) -> TaskPlacement:
    """Inference: the forward tasks only, holding nothing."""
    kept = [i for i, task in enumerate(placement.tasks) if task.kind is TaskKind.FORWARD]
    number = {i: k for k, i in enumerate(kept)}
    return replace(
        placement,
        tasks=tuple(replace(placement.tasks[i], memory=0.0) for i in kept),
        dependencies=tuple(
            replace(each, before=number[each.before], after=number[each.after])
            for each in placement.dependencies
            if each.before in number and each.after in number
        ),
    )


def _chain(devices: Sequence[tuple[int, ...]], *, kept: float = 1.0, first: int = 0) -> list[_Stage]:
    """Stages one after the other; those on several devices keep nothing."""
    return [_Stage(on, kept if len(on) == 1 else 0.0, (first + i - 1,) if i else ()) for i, on in enumerate(devices)]


def _each(devices: Sequence[int]) -> list[tuple[int, ...]]:
    return [(device,) for device in devices]


def _v(num_devices: int, _: int) -> list[_Stage]:
    return _chain(_each(range(num_devices)))


def _x(num_devices: int, _: int) -> list[_Stage]:
    there = _chain(_each(range(num_devices)))
    return there + _chain(_each(range(num_devices)[::-1]), first=num_devices)


def _m(num_devices: int, _: int) -> list[_Stage]:
    return _chain([tuple(range(num_devices)), *_each(range(num_devices))])


def _nn(num_devices: int, _: int) -> list[_Stage]:
    every, half = tuple(range(num_devices)), num_devices // 2
    return _chain([every, *_each(range(half)), every, *_each(range(half, num_devices))])


def _k(num_devices: int, _: int) -> list[_Stage]:
    """Two branches on halves of the devices, and a stage on all of them that needs both."""
    half = num_devices // 2
    branches = _chain(_each(range(half))) + _chain(_each(range(half, num_devices)), first=half)
    return [*branches, _Stage(tuple(range(num_devices)), 1.0, (half - 1, num_devices - 1))]


def _interleaved(num_devices: int, chunks: int) -> list[_Stage]:
    """Stage s on device s mod p, as Megatron-LM's interleaved schedule."""
    return _chain(_each([*range(num_devices)] * chunks), kept=1 / chunks)


def _zigzag(num_devices: int, chunks: int) -> list[_Stage]:
    """To the last device and back, as ZB-V and DualPipeV."""
    there = [*range(num_devices)]
    passes = [there[::-1] if chunk % 2 else there for chunk in range(chunks)]
    return _chain(_each([device for each in passes for device in each]), kept=1 / chunks)


SHAPES: dict[str, Callable[[int, int], list[_Stage]]] = {
    "V": _v,
    "X": _x,
    "M": _m,
    "NN": _nn,
    "K": _k,
    "interleaved": _interleaved,
    "zigzag": _zigzag,
}


def _forward_only(stages: Sequence[_Stage], options: ShapeOptions) -> tuple[tuple[Task, ...], tuple[Dependency, ...]]:
    tasks = tuple(
        Task(name=f"F{i}", devices=stage.devices, time=_time(stage, options.forward, options))
        for i, stage in enumerate(stages)
    )
    return tasks, _needs(stages)


def _needs(stages: Sequence[_Stage]) -> tuple[Dependency, ...]:
    return tuple(Dependency(before=need, after=i) for i, stage in enumerate(stages) for need in stage.needs)


def _with_backward(stages: Sequence[_Stage], options: ShapeOptions) -> tuple[tuple[Task, ...], tuple[Dependency, ...]]:
    """The backward pass mirrors the forward pass; with split gradients those of the weights free the memory."""
    count, is_split = len(stages), options.splits_backward
    users = [[j for j, stage in enumerate(stages) if i in stage.needs] for i in range(count)]
    back = {stage: count + place for place, stage in enumerate(reversed(range(count)))}
    tasks = [
        Task(name=f"F{i}", devices=stage.devices, time=_time(stage, options.forward, options), memory=stage.memory)
        for i, stage in enumerate(stages)
    ]
    dependencies = list(_needs(stages))
    share = 0.5 if is_split else 1.0
    for i in reversed(range(count)):
        stage = stages[i]
        tasks.append(
            Task(
                name=f"{'I' if is_split else 'B'}{i}",
                devices=stage.devices,
                time=share * _time(stage, options.backward, options),
                memory=0.0 if is_split else 0.0 - stage.memory,
                kind=TaskKind.INPUT if is_split else TaskKind.BACKWARD,
            )
        )
        dependencies += [Dependency(before=back[j], after=back[i]) for j in users[i]]
        if not users[i]:
            dependencies.append(Dependency(before=i, after=back[i]))
    for i in reversed(range(count)) if is_split else ():
        time = share * _time(stages[i], options.backward, options)
        dependencies.append(Dependency(before=back[i], after=len(tasks)))
        tasks.append(
            Task(
                name=f"W{i}",
                devices=stages[i].devices,
                time=time,
                memory=0.0 - stages[i].memory,
                kind=TaskKind.WEIGHT,
            )
        )
    return tuple(tasks), tuple(dependencies)


def _time(stage: _Stage, time: float, options: ShapeOptions) -> float:
    return options.shared if len(stage.devices) > 1 else time
