"""Which models are planned for where not all can be, against a planner that has room for so much."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import pytest

from headway.controller.kubernetes.admission import Admission, admit
from headway.core.errors import FailedPreconditionError, UnavailableError
from headway.core.plan.serving import ModelDeployment, ServingPlan

Make: TypeAlias = Callable[[str, int], ModelDeployment]

_EMPTY = ServingPlan(plan_id="", created_at_s=0.0, models=(), workers=(), assignments=())


class Room:
    """Plans for models as long as their sizes, which their longest sequences are, fit in `size`."""

    def __init__(self, size: int) -> None:
        self._size = size

    async def plan(self, models: Sequence[ModelDeployment]) -> ServingPlan:
        needed = sum(each.max_model_len or 0 for each in models)
        if needed > self._size:
            raise FailedPreconditionError(f"{needed} do not fit in {self._size}.")
        return replace(_EMPTY, models=tuple(models))


def planned(admission: Admission) -> dict[str, int | None]:
    assert admission.plan is not None
    return {each.name: each.max_model_len for each in admission.plan.models}


@pytest.fixture
def model(make_model: Callable[..., ModelDeployment]) -> Make:
    """One that takes so much of the room."""
    return lambda name, size: make_model(name, max_model_len=size)


async def test_all_are_planned_for_where_they_fit(model: Make) -> None:
    admission = await admit([model("a", 1), model("b", 1)], current={}, try_plan=Room(2).plan)
    assert planned(admission) == {"a": 1, "b": 1}
    assert admission.refused == {}


async def test_the_first_of_two_that_do_not_fit_together_is_served(model: Make) -> None:
    admission = await admit([model("a", 2), model("b", 2)], current={}, try_plan=Room(3).plan)
    assert planned(admission) == {"a": 2}
    assert str(admission.refused["b"]) == "4 do not fit in 3."


async def test_a_later_one_that_still_fits_is_taken_in(model: Make) -> None:
    admission = await admit([model("a", 2), model("b", 2), model("c", 1)], current={}, try_plan=Room(3).plan)
    assert planned(admission) == {"a": 2, "c": 1}


async def test_what_is_served_is_not_disturbed_by_an_older_one_that_grows(model: Make) -> None:
    served = {"old": model("old", 1), "young": model("young", 1)}
    admission = await admit([model("old", 3), model("young", 1)], current=served, try_plan=Room(3).plan)
    assert planned(admission) == {"old": 1, "young": 1}
    assert list(admission.refused) == ["old"]


async def test_what_is_not_wanted_any_more_makes_room(model: Make) -> None:
    admission = await admit([model("b", 3)], current={"a": model("a", 3)}, try_plan=Room(3).plan)
    assert planned(admission) == {"b": 3}


async def test_where_nothing_fits_the_reason_is_told(model: Make) -> None:
    with pytest.raises(FailedPreconditionError, match="8 do not fit in 3"):
        await admit([model("a", 8)], current={}, try_plan=Room(3).plan)


async def test_a_planner_that_is_away_refuses_nobody(model: Make) -> None:
    async def away(models: Sequence[ModelDeployment]) -> ServingPlan:
        raise UnavailableError("away")

    with pytest.raises(UnavailableError):
        await admit([model("a", 1), model("b", 1)], current={"a": model("a", 1)}, try_plan=away)


async def test_a_higher_priority_takes_the_room_of_the_youngest_of_the_lower_ones(model: Make) -> None:
    served = {name: model(name, 1) for name in ("a", "b", "c")}
    wanted = [model("urgent", 1), *served.values()]
    admission = await admit(wanted, current=served, try_plan=Room(3).plan, priorities={"urgent": 1})
    assert planned(admission) == {"urgent": 1, "a": 1, "b": 1}
    assert "made room for urgent" in str(admission.refused["c"])
    assert admission.refused.keys() == {"c"}


async def test_a_model_that_fits_in_nobodys_place_displaces_nobody(model: Make) -> None:
    served = {"a": model("a", 2), "equal": model("equal", 1)}
    wanted = [model("urgent", 3), model("equal", 1), model("a", 2)]
    priorities = {"urgent": 1, "equal": 1}
    admission = await admit(wanted, current=served, try_plan=Room(3).plan, priorities=priorities)
    assert planned(admission) == {"a": 2, "equal": 1}
    assert admission.refused.keys() == {"urgent"}


async def test_what_still_fits_beside_it_comes_back(model: Make) -> None:
    served = {"small": model("small", 1), "large": model("large", 3)}
    wanted = [model("urgent", 3), model("large", 3), model("small", 1)]
    admission = await admit(wanted, current=served, try_plan=Room(4).plan, priorities={"urgent": 5})
    assert planned(admission) == {"urgent": 3, "small": 1}
    assert admission.refused.keys() == {"large"}
