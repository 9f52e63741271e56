"""Groups that are alike are sized once, and each gets what it would have got by itself."""

from dataclasses import replace
from functools import partial
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from headway.core.errors import InvalidArgumentError
from headway.core.plan.serving import EngineLimits
from headway.planner.serving.grouping import Group, form_groups
from headway.planner.serving.replica import size_replica
from headway.planner.serving.sizings import GroupKinds, Sizings


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(data=st.data())
def test_each_group_gets_what_it_would_have_got_by_itself(
    data: st.DataObject, models_strategy: Any, workers_strategy: Any, limits_strategy: Any
) -> None:
    model, limits = data.draw(models_strategy)[0], data.draw(limits_strategy)
    workers = data.draw(workers_strategy)
    twins = [replace(worker, worker_id=f"{worker.worker_id}-twin", machine="other") for worker in workers]
    groups = form_groups(workers + twins, size=limits.parallel.num_ranks)
    size = partial(size_replica, limits=limits, profiles={})
    try:
        expected = [size(model, group) for group in groups]
    except InvalidArgumentError:
        assume(False)
    sizings = Sizings.make(model, GroupKinds.of(groups), size=size)
    assert [sizings.of(index) for index in range(len(groups))] == expected
    for index, sizing in enumerate(expected):
        assert isinstance(sizings.like(index), type(sizing))


def test_a_kind_of_group_is_sized_once(make_model: Any, make_worker: Any) -> None:
    small, large = {"memory_bytes": 2**31}, {"memory_bytes": 2**33}
    workers = [make_worker(f"worker-{index}", **(small if index % 2 else large)) for index in range(40)]
    sized: list[Group] = []

    def size(model: Any, group: Group) -> Any:
        sized.append(group)
        return size_replica(model, group, limits=EngineLimits(), profiles={})

    Sizings.make(make_model(), GroupKinds.of(form_groups(workers, size=1)), size=size)
    assert [group[0].worker_id for group in sized] == ["worker-0", "worker-1"]
