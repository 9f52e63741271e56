"""Published schedules as orders of devices: GPipe, 1F1B, interleaved 1F1B, ZB-V and DualPipeV."""

from collections.abc import Iterator, Sequence
from itertools import count

from headway.core.errors import InvalidArgumentError
from headway.core.schedule import Schedule, TaskKind, TaskPlacement
from headway.core.stage_chain import ChainStage, stage_chain
from headway.planner.schedule.predefined.controllable import v_half_orders, v_min_orders
from headway.planner.schedule.timing import Instance, Stuck, start_early, task_order

Orders = list[list[Instance]]


def gpipe(placement: TaskPlacement, num_micro_batches: int) -> Schedule:
    """All forward tasks of all micro-batches, then all others: on any placement."""
    order = task_order(placement)
    is_later = [task.kind is not TaskKind.FORWARD for task in placement.tasks]
    phases = ([i for i in order if is_later[i] is later] for later in (False, True))
    sequence = [(i, n) for phase in phases for n in range(num_micro_batches) for i in phase]
    orders = [[each for each in sequence if each[0] in on] for on in placement.tasks_by_device]
    return _timed(placement, orders, num_micro_batches, "gpipe")


def one_f_one_b(placement: TaskPlacement, num_micro_batches: int) -> Schedule:
    """1F1B: a device d of p starts with p - d forward tasks, then a backward task frees each further one."""
    stages = _stages(placement, per_device=1)
    orders: Orders = []
    for stage, each in enumerate(stages):
        warmup = min(len(stages) - stage, num_micro_batches)
        forwards = [[(each.forward, n)] for n in range(num_micro_batches)]
        backwards = [_backward(each, n) for n in range(num_micro_batches)]
        orders.append(_alternate(forwards, backwards, warmup))
    return _timed(placement, orders, num_micro_batches, "1f1b")


def graph_1f1b(placement: TaskPlacement, num_micro_batches: int, *, in_flight: Sequence[int]) -> Schedule:
    """1F1B of stages that are no chain: each starts with so many forward tasks, as GraphPipe's stages do.

    Args:
        in_flight: of each device, which has as many backward tasks as forward ones, both in the order of its own
            micro-batches.
    """
    orders: Orders = []
    for on, warmup in zip(placement.tasks_by_device, in_flight, strict=True):
        forward, backward = (
            [task for task in on if (placement.tasks[task].kind is TaskKind.FORWARD) is is_forward]
            for is_forward in (True, False)
        )
        forwards, backwards = (
            [[(task, n)] for n in range(num_micro_batches) for task in tasks] for tasks in (forward, backward)
        )
        orders.append(_alternate(forwards, backwards, min(warmup, len(forwards))))
    return _timed(placement, orders, num_micro_batches, "1f1b")


def interleaved_1f1b(placement: TaskPlacement, num_micro_batches: int) -> Schedule:
    """Megatron-LM's: stage s on device s mod p, runs of p micro-batches for each of a device's stages in turn."""
    stages, num_devices = stage_chain(placement), placement.num_devices
    chunks = len(stages) // num_devices
    if chunks < 2 or [stage.device for stage in stages] != [*range(num_devices)] * chunks:
        raise InvalidArgumentError("Interleaved 1F1B needs two stages or more on each device, in turn.")
    if num_micro_batches % num_devices:
        raise InvalidArgumentError(f"Interleaved 1F1B needs a multiple of {num_devices} micro-batches.")
    orders: Orders = []
    for device in range(num_devices):
        forwards, backwards = [], []
        for k in range(num_micro_batches * chunks):
            chunk, micro_batch = k // num_devices % chunks, k // (num_devices * chunks) * num_devices + k % num_devices
            forwards.append([(stages[chunk * num_devices + device].forward, micro_batch)])
            backwards.append(_backward(stages[(chunks - 1 - chunk) * num_devices + device], micro_batch))
        warmup = (num_devices - device - 1) * 2 + (chunks - 1) * num_devices + 1
        orders.append(_alternate(forwards, backwards, min(warmup, len(forwards))))
    return _timed(placement, orders, num_micro_batches, "interleaved-1f1b")


def zb_v(placement: TaskPlacement, num_micro_batches: int) -> Schedule:
    """ZB-V, as torch.distributed.pipelining has it: two stages on each device, there and back."""
    stages, p = _zigzag(placement), placement.num_devices
    most = max(2 * p - 1, num_micro_batches)
    orders = [list(_zb_v_device(stages[d], stages[2 * p - 1 - d], d, p, most)) for d in range(p)]
    kept = [[each for each in order if each[1] < num_micro_batches] for order in orders]
    return _timed(placement, kept, num_micro_batches, "zb-v")


def dualpipe_v(placement: TaskPlacement, num_micro_batches: int) -> Schedule:
    """DualPipeV, as torch.distributed.pipelining has it, without overlapping two tasks of a device."""
    stages, p = _zigzag(placement), placement.num_devices
    if num_micro_batches < 2 * p:
        raise InvalidArgumentError(f"DualPipeV needs {2 * p} micro-batches or more.")
    orders = [_DualPipeV((stages[d], stages[2 * p - 1 - d])).run(d, p, num_micro_batches) for d in range(p)]
    return _timed(placement, orders, num_micro_batches, "dualpipe-v")


def v_half(placement: TaskPlacement, num_micro_batches: int) -> Schedule:
    """Half of the memory of 1F1B, and one micro-batch's."""
    return _timed(placement, v_half_orders(placement, num_micro_batches), num_micro_batches, "v-half")


def v_min(placement: TaskPlacement, num_micro_batches: int) -> Schedule:
    """A third of the memory of 1F1B."""
    return _timed(placement, v_min_orders(placement, num_micro_batches), num_micro_batches, "v-min")


def _zb_v_device(there: ChainStage, back: ChainStage, rank: int, p: int, most: int) -> Iterator[Instance]:
    f0, f1, b0, b1, w0, w1 = (count() for _ in range(6))
    num_f0, num_f1, num_b0, num_b1 = 2 * (p - rank) - 1 + rank, rank, 0, 0
    yield from ((there.forward, next(f0)) for _ in range(2 * (p - rank) - 1))
    for _ in range(rank):
        yield back.forward, next(f1)
        yield there.forward, next(f0)
    for _ in range(p - rank):
        yield back.forward, next(f1)
        yield from ((_input(back), next(b1)), (_weight(back), next(w1)))
        num_f1, num_b1 = num_f1 + 1, num_b1 + 1
    while num_f1 < num_f0 or num_f0 < most:
        if num_f0 < most:
            yield there.forward, next(f0)
            num_f0 += 1
        yield from ((_input(there), next(b0)), (_weight(there), next(w0)), (back.forward, next(f1)))
        yield from ((_input(back), next(b1)), (_weight(back), next(w1)))
        num_f1, num_b0, num_b1 = num_f1 + 1, num_b0 + 1, num_b1 + 1
    for _ in range(rank):
        yield from ((_input(there), next(b0)), (_input(back), next(b1)))
    for _ in range(p - rank):
        yield from ((_input(there), next(b0)), (_weight(there), next(w0)))
    yield from ((_weight(back), n) for n in range(num_b1, num_b1 + rank))
    yield from ((_weight(there), n) for n in range(num_b0 + p - rank, num_b0 + p))


class _DualPipeV:
    """Writes down what one device runs; each task takes its own next micro-batch."""

    def __init__(self, stages: tuple[ChainStage, ChainStage]) -> None:
        self._stages = stages
        self._order: list[Instance] = []
        self._next: dict[int, int] = {}
        self._pending: list[Instance] = []

    def run(self, rank: int, p: int, num_micro_batches: int) -> list[Instance]:
        for _ in range((p - rank - 1) * 2):
            self._forward(0)
        for _ in range(rank + 1):
            self._forward(0)
            self._forward(1)
        for _ in range(p - rank - 1):
            self._input(1)
            self._weight()
            self._forward(1)
        for _ in range(num_micro_batches - p * 2 + rank + 1):
            self._forward(0)
            self._backward(1)
            self._forward(1)
            self._backward(0)
        for _ in range(p - rank - 1):
            self._backward(1)
            self._forward(1)
            self._backward(0)
        self._end(rank, p)
        return self._order

    def _end(self, rank: int, p: int) -> None:
        """The second half of what goes back leaves the weights for the time in which nothing else is there."""
        is_late = False
        for i in range(rank + 1):
            is_late = is_late or (i == (rank + 1) // 2 and rank % 2 == 1)
            self._input(1) if is_late else self._backward(1)
            is_late = is_late or (i == (rank + 1) // 2 and rank % 2 == 0)
            self._input(0) if is_late else self._backward(0)
        for _ in range(p - rank - 1):
            self._weight()
            self._input(0) if is_late else self._backward(0)
        for _ in range(rank + 1):
            self._weight()

    def _take(self, task: int) -> Instance:
        self._next[task] = self._next.get(task, -1) + 1
        return task, self._next[task]

    def _forward(self, chunk: int) -> None:
        self._order.append(self._take(self._stages[chunk].forward))

    def _backward(self, chunk: int) -> None:
        task, micro_batch = self._take(_input(self._stages[chunk]))
        self._order += [(task, micro_batch), (_weight(self._stages[chunk]), micro_batch)]

    def _input(self, chunk: int) -> None:
        self._order.append(self._take(_input(self._stages[chunk])))
        self._pending.append((_weight(self._stages[chunk]), self._order[-1][1]))

    def _weight(self) -> None:
        if self._pending:
            self._order.append(self._pending.pop(0))


def _stages(placement: TaskPlacement, *, per_device: int) -> tuple[ChainStage, ...]:
    stages = stage_chain(placement)
    if [stage.device for stage in stages] != [*range(placement.num_devices)] * per_device:
        raise InvalidArgumentError("1F1B needs one stage on each device, in order.")
    return stages


def _zigzag(placement: TaskPlacement) -> tuple[ChainStage, ...]:
    stages, there = stage_chain(placement), [*range(placement.num_devices)]
    if [stage.device for stage in stages] != there + there[::-1] or stages[0].weight is None:
        raise InvalidArgumentError("This needs two stages on each device, there and back, with split gradients.")
    return stages


def _input(stage: ChainStage) -> int:
    assert stage.input is not None
    return stage.input


def _weight(stage: ChainStage) -> int:
    assert stage.weight is not None
    return stage.weight


def _backward(stage: ChainStage, micro_batch: int) -> list[Instance]:
    tasks = (stage.backward, stage.input, stage.weight)
    return [(task, micro_batch) for task in tasks if task is not None]


def _alternate(forwards: list[list[Instance]], backwards: list[list[Instance]], warmup: int) -> list[Instance]:
    """`warmup` forward tasks, then one of each in turn, then what is left."""
    steps: Iterator[list[Instance]] = iter(forwards[:warmup])
    order = [each for step in steps for each in step]
    for place, step in enumerate(backwards):
        order += step
        order += forwards[warmup + place] if warmup + place < len(forwards) else []
    return order


def _timed(placement: TaskPlacement, orders: Orders, num_micro_batches: int, method: str) -> Schedule:
    made = start_early(placement, orders, num_micro_batches=num_micro_batches, method=method)
    if isinstance(made, Stuck):
        raise InvalidArgumentError(f"{method} does not fit {placement.name}: device {made.device} waits for ever.")
    return made
