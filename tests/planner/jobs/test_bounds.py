"""What callers of the planner may choose of the machines: nothing but a few processes."""

import pytest

from headway.core.errors import InvalidArgumentError
from headway.core.search_job import SearchWork
from headway.planner.jobs.bounds import SearchBounds


def work(kind: str = "placement", **request: object) -> SearchWork:
    return SearchWork(kind=kind, request=request, time_limit_s=None, version="1")


@pytest.mark.parametrize("kind", ["placement", "training"])
@pytest.mark.parametrize("bounds", [SearchBounds(), SearchBounds(ray="head:6379")], ids=["here", "ray"])
def test_a_caller_cannot_choose_the_cluster(bounds: SearchBounds, kind: str) -> None:
    """Ray's protocol is pickle: whoever answers at the address runs code in the planner."""
    for address in ("evil:6379", "head:6379", "auto"):
        with pytest.raises(InvalidArgumentError, match="HEADWAY_RAY"):
            bounds.applied(work(kind, ray=address))
    assert bounds.applied(work(kind, processes=2)).request.get("ray", "") == bounds.ray


@pytest.mark.parametrize("processes", [0, -1, 5, 10**9, "4", 2.5])
def test_processes_are_bounded(processes: object) -> None:
    bounds = SearchBounds(max_processes=4)
    with pytest.raises(InvalidArgumentError, match=r"from 1 to 4.*HEADWAY_MAX_PROCESSES"):
        bounds.applied(work(processes=processes))
    for few in (None, 1, 4):
        assert bounds.applied(work(processes=few)) == work(processes=few)


def test_searches_of_other_kinds_are_what_they_are() -> None:
    assert SearchBounds(ray="head:6379").applied(work("schedule")) == work("schedule")
