"""Local search on a Ray cluster of this machine.

One seed finds the same there as in processes.
"""

from headway.planner.executors.processes import process_executor
from headway.planner.executors.ray_cluster import ray_executor
from headway.planner.placement.search import BetterPlacement, SearchOptions
from tests.planner.placement.test_search import run, traffic

# A cluster starts in half a minute on a slow machine, and each of its processes loads the compiled simulator anew.

OPTIONS = SearchOptions(moves=200, resamples=0, seed=3)


def test_ray_finds_what_processes_find_and_can_be_stopped() -> None:
    with process_executor(2) as executor:
        expected = run(traffic(), options=OPTIONS, executor=executor)
    heard = list[BetterPlacement]()
    asked = iter(range(10**6))
    with ray_executor("local", size=2) as executor:
        found = run(traffic(), options=OPTIONS, executor=executor)
        stopped = run(
            traffic(),
            options=SearchOptions(moves=10**6, resamples=0),
            report=heard.append,
            should_stop=lambda: len(heard) > 0 and next(asked) > 40,
            executor=executor,
        )
    assert (found.placement, found.attainment) == (expected.placement, expected.attainment)
    assert not stopped.complete
    assert stopped.placement == heard[-1].placement
