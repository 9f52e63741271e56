"""Numbers of micro-batches that are tried at once in processes: the plan is that of one process."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pytest

from headway.planner.executors.processes import process_executor
from headway.planner.training.alpa import AlpaSearch, Found
from headway.planner.training.candidates import Ahead, Candidates, Task, Tried
from headway.planner.training.micro_batches import search_micro_batches
from tests.planner.training.steps import COSTS, nodes_of, problem_of

PROBLEM = problem_of(nodes_of(2, 2), micro_batches=(1, 2, 4, 8, 16))


def test_two_processes_find_what_one_does_and_keep_the_best_when_they_are_stopped() -> None:
    expected = AlpaSearch(PROBLEM, COSTS).run(report=lambda _: None, should_stop=lambda: False)
    assert expected is not None
    with process_executor(2) as executor:
        search = AlpaSearch(PROBLEM, COSTS)
        found = search.run(report=lambda _: None, should_stop=lambda: False, executor=executor)
        heard: list[Found] = []
        stopped = AlpaSearch(PROBLEM, COSTS).run(
            report=heard.append, should_stop=lambda: bool(heard), executor=executor
        )
    assert found is not None
    assert (found.stages, found.num_micro_batches) == (expected.stages, expected.num_micro_batches)
    assert search.elsewhere_cpu_s > 0
    assert stopped is heard[-1]


@dataclass(frozen=True, slots=True)
class Cut:
    num_micro_batches: int
    iteration_s: float


@dataclass(slots=True)
class Here:
    """Does one task after the other in this process, each only when its result is asked for."""

    size: int

    def map(
        self,
        task: Task[Cut | None],
        shared: Candidates,
        items: Sequence[int],
        should_stop: Callable[[], bool],
    ) -> Iterator[Tried[Cut | None]]:
        assert len(items) <= self.size
        return (task(shared, item) for item in items)


@pytest.mark.parametrize("size", range(1, 6))
@pytest.mark.parametrize("best", PROBLEM.numbers_of_micro_batches())
def test_a_search_that_looks_ahead_ends_where_another_does(size: int, best: int) -> None:
    numbers = PROBLEM.numbers_of_micro_batches()

    def cut(number: int) -> Cut | None:
        distance = abs(numbers.index(number) - numbers.index(best))
        return None if distance > 3 else Cut(number, 1.0 + distance)

    def tried(_: Candidates, number: int) -> Tried[Cut | None]:
        return Tried(found=cut(number), cpu_s=1.0)

    def run(ask: Callable[[int], Cut | None]) -> Cut | None:
        return search_micro_batches(numbers, ask, num_devices=2, report=lambda _: None, should_stop=lambda: False)

    shared = Candidates(problem=PROBLEM, costs=COSTS)
    ahead = Ahead(task=tried, shared=shared, numbers=numbers, executor=Here(size), should_stop=lambda: False)
    assert run(ahead) == run(cut)
    assert ahead.cpu_s >= 1
