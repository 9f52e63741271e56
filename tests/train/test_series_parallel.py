"""Random modules in random stages: exact, and nothing waits for ever."""

from headway.core.execution.execution import ActionKind
from tests.train.series_parallel import check


def test_random_modules_in_random_stages_are_exact() -> None:
    """A few of those that `python -m tests.train.series_parallel` checks."""
    found = [check(seed) for seed in (*range(5), 21)]  # in 21 two stages both make terms of one gradient
    kinds = {action.kind for execution in found for each in execution.ranks for action in each.actions}
    assert {ActionKind.SEND, ActionKind.JOIN, ActionKind.GATHER} <= kinds
    assert max(len(execution.stages) for execution in found) > 2
