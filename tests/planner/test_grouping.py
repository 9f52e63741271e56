"""Groups of equal neighbours."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.planner.serving.grouping import Group, form_groups


def ids(groups: list[Group]) -> list[tuple[str, ...]]:
    return [tuple(worker.worker_id for worker in group) for group in groups]


@pytest.fixture
def five(make_worker: Any) -> Any:
    return [make_worker(f"worker-{index}") for index in range(5)]


def test_neighbours_make_a_group_and_the_rest_stays_alone(five: Any) -> None:
    assert ids(form_groups(five, size=2)) == [("worker-0", "worker-1"), ("worker-2", "worker-3")]
    assert ids(form_groups(five, size=1)) == [(worker.worker_id,) for worker in five]
    assert form_groups(five, size=6) == []


def test_a_group_has_one_kind_of_hardware(make_worker: Any) -> None:
    threads = (2, 4, 2, 4, 8)
    workers = [make_worker(f"worker-{index}", num_threads=num) for index, num in enumerate(threads)]
    assert ids(form_groups(workers, size=2)) == [("worker-0", "worker-2"), ("worker-1", "worker-3")]


def test_groups_stay_together_while_their_workers_are_there(five: Any) -> None:
    held = [("worker-3", "worker-1"), ("worker-4", "worker-9"), ("worker-0",)]
    assert ids(form_groups(five, size=2, keep=held)) == [("worker-0", "worker-2"), ("worker-3", "worker-1")]


def test_a_group_whose_workers_came_to_differ_is_made_anew(make_worker: Any) -> None:
    workers = [make_worker(f"worker-{index}", num_threads=1 + index % 2) for index in range(4)]
    held = [("worker-0", "worker-1")]
    assert ids(form_groups(workers, size=2, keep=held)) == [("worker-0", "worker-2"), ("worker-1", "worker-3")]


@given(
    kinds=st.lists(st.tuples(st.integers(1, 3), st.sampled_from("ab")), max_size=12),
    size=st.integers(1, 4),
    seed=st.randoms(),
)
def test_there_are_as_many_groups_as_equal_workers_allow(
    kinds: list[tuple[int, str]], size: int, seed: Any, make_worker: Any
) -> None:
    threads = [num for num, _ in kinds]
    workers = [
        replace(make_worker(f"worker-{index}", num_threads=num), machine=machine)
        for index, (num, machine) in enumerate(kinds)
    ]
    first = form_groups(workers, size=size)
    held = [group for group in ids(first) if seed.random() < 0.5]
    for groups in (first, form_groups(workers, size=size, keep=held)):
        assert len(groups) == sum(threads.count(num) // size for num in set(threads))
        members = [worker_id for group in ids(groups) for worker_id in group]
        assert len(members) == len(set(members))
        assert all(len({worker.hardware.num_threads for worker in group}) == 1 for group in groups)
    assert set(held) <= set(ids(groups))


def test_groups_are_of_one_machine_each_as_far_as_possible(five: Any) -> None:
    machines = ("a", "b", "a", "b", "b")
    workers = [replace(worker, machine=machine) for worker, machine in zip(five, machines, strict=True)]
    assert ids(form_groups(workers, size=2)) == [("worker-0", "worker-2"), ("worker-1", "worker-3")]
    assert ids(form_groups(workers, size=3)) == [("worker-1", "worker-3", "worker-4")]
    assert ids(form_groups(workers, size=5)) == [tuple(f"worker-{index}" for index in (0, 2, 1, 3, 4))]
