"""From the cells that there are to those that are wanted."""

from collections.abc import Collection
from typing import Any

from headway.controller.kubernetes.cells import Cell, next_steps


def cells(*names: str, **state: Any) -> list[Cell]:
    return [Cell(name=name, uid=f"uid of {name}", **({"is_ready": True} | state)) for name in names]


def steps(
    there: list[Cell], num_wanted: int, *, serving: Collection[str] = (), unplanned: Collection[str] = ()
) -> dict[str, list[str]]:
    """The names of the cells of each step that is not empty."""
    found = next_steps("v100", there, num_wanted=num_wanted, serving=serving, unplanned=unplanned)
    named = {
        "create": list(found.create),
        "drain": [cell.name for cell in found.drain],
        "delete": [cell.name for cell in found.delete],
    }
    return {what: names for what, names in named.items() if names}


def staying(there: list[Cell], num_wanted: int, *, serving: Collection[str] = ()) -> set[str]:
    return set(next_steps("v100", there, num_wanted=num_wanted, serving=serving, unplanned=()).staying)


def test_missing_cells_are_made_under_the_first_free_names() -> None:
    assert steps([], 2) == {"create": ["v100-0", "v100-1"]}
    assert steps(cells("v100-0", "v100-2"), 4) == {"create": ["v100-1", "v100-3"]}
    assert steps(cells("v100-0", "v100-1"), 2) == {}


def test_one_that_ends_is_waited_for_and_has_its_name_again() -> None:
    there = [*cells("v100-0", is_ending=True), *cells("v100-1")]
    assert steps(there, 2) == {}
    assert staying(there, 2) == {"v100-0", "v100-1"}
    assert steps(there[1:], 2) == {"create": ["v100-0"]}
    assert steps(there, 3) == {"create": ["v100-2"]}


def test_the_drained_cell_is_the_one_removed() -> None:
    there = cells("v100-0", "v100-1", "v100-2")
    everyone = {cell.name for cell in there}
    assert steps(there, 2, serving=everyone) == {"drain": ["v100-2"]}
    assert steps(there, 2, serving={"v100-0", "v100-2"}) == {"delete": ["v100-1"]}


def test_a_cell_that_is_being_drained_goes_on_being_so() -> None:
    there = cells("v100-0", "v100-1", "v100-2")
    everyone = {cell.name for cell in there}
    assert steps(there, 2, serving=everyone, unplanned={"v100-0"}) == {"drain": ["v100-0"]}
    assert steps(there, 2, serving={"v100-1", "v100-2"}, unplanned={"v100-0"}) == {"delete": ["v100-0"]}


def test_one_that_does_not_run_goes_before_one_that_does() -> None:
    there = [*cells("v100-0", is_ready=False, trouble="no node has 8 GPUs"), *cells("v100-1")]
    assert steps(there, 1, serving={"v100-1"}) == {"delete": ["v100-0"]}


def test_a_pool_may_shrink_to_nothing() -> None:
    assert steps(cells("v100-0"), 0, serving={"v100-0"}) == {"drain": ["v100-0"]}
    assert steps(cells("v100-0"), 0) == {"delete": ["v100-0"]}


def test_one_that_has_ended_is_deleted_and_made_again() -> None:
    there = [*cells("v100-0", has_ended=True), *cells("v100-1")]
    assert steps(there, 2) == {"delete": ["v100-0"]}
    assert staying(there, 2) == {"v100-0", "v100-1"}


def test_what_leaves_does_not_stay_while_it_ends() -> None:
    assert staying(cells("v100-0", "v100-1"), 1, serving={"v100-0", "v100-1"}) == {"v100-0"}
    assert staying([*cells("v100-0"), *cells("v100-1", is_ending=True)], 1) == {"v100-0"}


def test_outdated_cells_are_replaced_one_by_one_and_when_all_are_ready() -> None:
    old = cells("v100-0", "v100-1", is_outdated=True)
    assert steps(old, 2, serving={"v100-0", "v100-1"}) == {"delete": ["v100-0"]}
    new = cells("v100-0", is_ready=False)
    assert steps([*new, old[1]], 2) == {}
    assert steps([*cells("v100-0"), old[1]], 2) == {"delete": ["v100-1"]}
    assert steps([*old, *cells("v100-2", is_ending=True)], 2) == {}


def test_an_outdated_cell_that_never_became_ready_holds_nothing_up() -> None:
    assert steps([*cells("v100-0"), *cells("v100-1", is_outdated=True, is_ready=False)], 2) == {"delete": ["v100-1"]}


def test_outdated_cells_that_serve_are_not_all_replaced_at_once_because_they_load_something() -> None:
    loading = cells("v100-0", "v100-1", is_outdated=True, is_ready=False)
    everyone = {"v100-0", "v100-1"}
    assert steps(loading, 2, serving=everyone) == {"delete": ["v100-0"]}
    assert steps([*cells("v100-0", is_ending=True), loading[1]], 2, serving=everyone) == {}
    assert steps([*cells("v100-0", is_ready=False), loading[1]], 2, serving=everyone) == {}
    assert steps([*cells("v100-0"), loading[1]], 2, serving=everyone) == {"delete": ["v100-1"]}
    assert steps([*cells("v100-0", is_outdated=True), loading[1]], 2, serving=everyone) == {"delete": ["v100-1"]}
