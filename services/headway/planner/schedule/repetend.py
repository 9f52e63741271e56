"""Repetends with CP-SAT: micro-batch indices and starts are variables of one model (sections IV-B and V)."""

from dataclasses import dataclass

from ortools.sat.python import cp_model

from headway.planner.schedule.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A repetend in ticks.

    Attributes:
        indices, starts: of each task; the smallest index is 0, and so is the earliest start.
    """

    period: int
    indices: tuple[int, ...]
    starts: tuple[int, ...]

    @property
    def num_micro_batches(self) -> int:
        """N_R."""
        return max(self.indices) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a solver says.

    Attributes:
        kernel: None where there is none, or none was found.
        is_proven: whether there is no better one, or none at all.
        bound: what the period is not below, by this solver.
    """

    kernel: Kernel | None
    is_proven: bool
    bound: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long a solver may try: `units` is CP-SAT's deterministic time, so that the same is found again."""

    units: float
    workers: int = 1
    seconds: float = 600.0


class RepetendModel:
    """Each task once, in a window of one period on each of its devices.

    A task of index n runs for micro-batch r + n in repetition r. With `d` the index of what a task needs less its own,
    it starts `d` periods later at most: s_j + d T >= s_i + t_i. By property 4.2 no d is below 0.
    """

    def __init__(self, problem: Problem, *, num_micro_batches: int, period: int | None, most: int = 0) -> None:
        """Args:
        period: None to search for the shortest, which is not above `most`.
        """
        self._problem, self._model = problem, cp_model.CpModel()
        self._most = period or most
        self._period: cp_model.LinearExprT = period or self._model.new_int_var(problem.lower_bound, most, "period")
        tasks, width = range(problem.num_tasks), _depth(problem, self._most) * self._most
        self._index = [self._model.new_int_var(0, num_micro_batches - 1, f"n{i}") for i in tasks]
        self._start = [self._model.new_int_var(0, width + self._most, f"s{i}") for i in tasks]
        self._orders: dict[tuple[int, int], cp_model.IntVar] = {}
        for i, j, lag in problem.edges:
            self._add_dependency(i, j, problem.times[i] + lag, num_micro_batches, fixed=period)
        for on in problem.on:
            self._add_device(on, width)
        if problem.capacities is not None:
            for on, capacity in zip(problem.on, problem.capacities, strict=True):
                self._add_memory(on, capacity)
        if period is None:
            self._model.minimize(self._period)

    def solve(self, effort: Effort, *, hint: Kernel | None = None) -> Answer:
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = effort.workers
        solver.parameters.max_deterministic_time = effort.units
        solver.parameters.max_time_in_seconds = effort.seconds
        if hint is not None:
            for index, start, n, s in zip(self._index, self._start, hint.indices, hint.starts, strict=True):
                self._model.add_hint(index, n)
                self._model.add_hint(start, s)
        status = solver.status_name(solver.solve(self._model))
        if status not in ("OPTIMAL", "FEASIBLE"):
            return Answer(kernel=None, is_proven=status == "INFEASIBLE")
        indices, starts = [solver.value(n) for n in self._index], [solver.value(s) for s in self._start]
        kernel = Kernel(
            period=solver.value(self._period),
            indices=tuple(n - min(indices) for n in indices),
            starts=tuple(s - min(starts) for s in starts),
        )
        return Answer(kernel=kernel, is_proven=status == "OPTIMAL", bound=round(solver.best_objective_bound))

    def _add_dependency(self, i: int, j: int, time: int, num_micro_batches: int, *, fixed: int | None) -> None:
        ahead = self._model.new_int_var(0, num_micro_batches - 1, f"d{i},{j}")
        self._model.add(ahead == self._index[i] - self._index[j])
        if fixed is not None:
            self._model.add(self._start[j] + fixed * ahead >= self._start[i] + time)
            return
        for periods in range(num_micro_batches):
            is_so = self._model.new_bool_var(f"d{i},{j}={periods}")
            self._model.add(ahead == periods).only_enforce_if(is_so)
            self._model.add(ahead != periods).only_enforce_if(is_so.negated())
            self._model.add(self._start[j] + periods * self._period >= self._start[i] + time).only_enforce_if(is_so)

    def _add_device(self, on: tuple[int, ...], width: int) -> None:
        """All of a device's tasks within one period, E_R + W_R of equation (4), one at a time."""
        times, window = self._problem.times, self._model.new_int_var(0, width, "window")
        for i in on:
            self._model.add(self._start[i] >= window)
            self._model.add(self._start[i] + times[i] <= window + self._period)
        self._model.add_no_overlap(
            [self._model.new_fixed_size_interval_var(self._start[i], times[i], f"run{i}") for i in on]
        )

    def _add_memory(self, on: tuple[int, ...], capacity: int) -> None:
        """What ran before the repetition, of earlier micro-batches, and what of it ran before each task."""
        memory = self._problem.memory
        entry = sum(memory[i] * self._index[i] for i in on if memory[i])
        for i in on:
            if memory[i] <= 0:
                continue
            before = sum(memory[k] * self._is_before(k, i) for k in on if k != i and memory[k])
            self._model.add(entry + before + memory[i] <= capacity)

    def _is_before(self, i: int, j: int) -> cp_model.LinearExprT:
        """Whether i runs before j on the device that they share."""
        low, high = min(i, j), max(i, j)
        if (low, high) not in self._orders:
            order = self._model.new_bool_var(f"{low}<{high}")
            times, start = self._problem.times, self._start
            self._model.add(start[low] + times[low] <= start[high]).only_enforce_if(order)
            self._model.add(start[high] + times[high] <= start[low]).only_enforce_if(order.negated())
            self._orders[low, high] = order
        return self._orders[low, high] if i == low else 1 - self._orders[low, high]


def _depth(problem: Problem, period: int) -> int:
    """Periods over which windows of devices may lie apart: one for devices that share a task; a chain of tasks is not
    longer than what links the others."""
    devices = range(len(problem.on))
    near = [{other for other in devices if set(problem.on[device]) & set(problem.on[other])} for device in devices]
    hops = [_hops(near, device) for device in devices]
    if all(len(each) == len(devices) for each in hops):
        return max(max(each.values()) for each in hops)
    chain = max(head + time for head, time in zip(problem.heads, problem.times, strict=True))
    return min(chain // period + 2, problem.num_tasks + 1)


def _hops(near: list[set[int]], device: int) -> dict[int, int]:
    """The devices that are reached from one, and over how many."""
    found, ring = {device: 0}, [device]
    for each in ring:  # grows while it is walked
        for other in near[each]:
            if other not in found:
                found[other] = found[each] + 1
                ring.append(other)
    return found


def find_kernel(problem: Problem, *, period: int, num_micro_batches: int, effort: Effort) -> Answer:
    """Looks for a repetend with a given period that spans `num_micro_batches` at most."""
    return RepetendModel(problem, num_micro_batches=num_micro_batches, period=period).solve(effort)


def find_shortest(
    problem: Problem, *, most: int, num_micro_batches: int, effort: Effort, hint: Kernel | None = None
) -> Answer:
    """Looks for the repetend with the shortest period."""
    model = RepetendModel(problem, num_micro_batches=num_micro_batches, period=None, most=most)
    return model.solve(effort, hint=hint)
