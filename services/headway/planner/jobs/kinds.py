"""The kinds of searches. A new one is a module with a `run` and a line here."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

from headway.core.errors import InvalidArgumentError
from headway.core.search_progress import SearchProgress

MODULE_BY_KIND = {
    "placement": "headway.planner.jobs.placement",
    "frontier": "headway.planner.jobs.frontier",
    "training": "headway.planner.jobs.training",
    "schedule": "headway.planner.jobs.schedule",
    "backends": "headway.planner.jobs.backends",
}


class RunSearch(Protocol):
    """A search, as a module of a kind has it under the name `run`. It runs in a process of its own."""

    def __call__(
        self,
        request: dict[str, Any],
        *,
        report: Callable[[SearchProgress], None],
        should_stop: Callable[[], bool],
        resume: dict[str, Any] | None,
    ) -> dict[str, Any]:
        """Searches until done or `should_stop`, and returns the result as a document.

        Args:
            report: hears of every phase, and of every better result.
            should_stop: asked between steps; the result is the best so far then.
            resume: the `best` that the same search reported last, before it ended early; None for none.

        Raises:
            HeadwayError: there is nothing to be found; CancelledError where it was stopped before it had anything.
        """


def check_kind(kind: str) -> None:
    """Raises InvalidArgumentError where there is no such kind."""
    if kind not in MODULE_BY_KIND:
        raise InvalidArgumentError(
            f"There is no search of the kind '{kind}'.", hint=f"Known are {', '.join(MODULE_BY_KIND)}.", field="kind"
        )


def search_of(kind: str) -> RunSearch:
    """Imports the search of a kind, with all that it needs."""
    check_kind(kind)
    run: RunSearch = import_module(MODULE_BY_KIND[kind]).run
    return run
