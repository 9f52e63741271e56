"""A pytest plugin of `make test-flaky`: an order drawn from a seed, only files that start processes."""

import inspect
import random
import re
import sys
from itertools import groupby
from pathlib import Path
from types import ModuleType

import pytest

_PROCESSES = re.compile(r"subprocess|multiprocessing|psutil|sys\.executable")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("order")
    group.addoption("--order-seed", type=int, required=True, help="seed of the order of files and of the tests in each")
    group.addoption("--only-processes", action="store_true", help="leave out the files that start no processes")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Every process of a parallel run draws the same order."""
    rng = random.Random(config.getoption("--order-seed"))
    files = [list(tests) for _, tests in groupby(items, key=lambda item: item.path)]
    if config.getoption("--only-processes"):
        config.hook.pytest_deselected(items=[item for tests in files if not _start_processes(tests) for item in tests])
        files = [tests for tests in files if _start_processes(tests)]
    rng.shuffle(files)
    for tests in files:
        rng.shuffle(tests)
    items[:] = [item for tests in files for item in tests]


def _start_processes(tests: list[pytest.Item]) -> bool:
    """Whether the file of the tests, a fixture's of theirs or what these import from the tests speaks of processes."""
    functions = [test for test in tests if isinstance(test, pytest.Function)]
    fixtures = [
        fixture for test in functions for each in test._fixtureinfo.name2fixturedefs.values() for fixture in each
    ]
    modules = {test.module for test in functions} | {sys.modules.get(fixture.func.__module__) for fixture in fixtures}
    seen = set[ModuleType]()
    while modules:
        module = modules.pop()
        if module is None or module in seen or not _is_of_the_tests(module):
            continue
        seen.add(module)
        if _PROCESSES.search(inspect.getsource(module)):
            return True
        for value in vars(module).values():
            modules.add(value if isinstance(value, ModuleType) else sys.modules.get(getattr(value, "__module__", "")))
    return False


def _is_of_the_tests(module: ModuleType) -> bool:
    return Path(__file__).parent in Path(getattr(module, "__file__", None) or "/").parents
