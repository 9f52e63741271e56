"""Local search in processes of this machine, and Ray clusters that are not there."""

import subprocess
import sys

import pytest

from headway.core.errors import UnavailableError
from headway.planner.executors.processes import process_executor
from headway.planner.executors.ray_cluster import ray_executor
from headway.planner.placement.search import BetterPlacement, SearchOptions
from tests.planner.placement.test_search import run, traffic

NO_RAY = """
import sys
sys.modules["ray"] = None
from headway.core.errors import FailedPreconditionError
from headway.planner.executors import search_executor
try:
    with search_executor(None, "auto"):
        pass
except FailedPreconditionError as error:
    print(error.message, error.hint)
"""


def test_a_search_that_is_stopped_in_its_first_round_keeps_what_was_best_before() -> None:
    heard = list[BetterPlacement]()
    asked = iter(range(10**6))
    options = SearchOptions(moves=10**6, resamples=0)
    with process_executor(2) as executor:
        found = run(
            traffic(),
            options=options,
            report=heard.append,
            should_stop=lambda: len(heard) > 0 and next(asked) > 40,
            executor=executor,
        )
    assert not found.complete
    assert found.placement == heard[-1].placement


def test_a_cluster_that_is_not_there_is_named() -> None:
    with pytest.raises(UnavailableError, match=r"no Ray cluster at '127\.0\.0\.1:1'"), ray_executor("127.0.0.1:1"):
        pass


def test_without_ray_the_package_is_named() -> None:
    said = subprocess.run([sys.executable, "-c", NO_RAY], capture_output=True, text=True, check=True).stdout
    assert "Ray is not installed." in said
    assert "headway[ray]" in said
