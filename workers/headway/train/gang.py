"""The ranks of a run, as one: they are started together, watched, and ended together."""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from headway.core.codec import from_document
from headway.core.errors import HeadwayError, UnavailableError
from headway.core.fault import Fault
from headway.core.training_run import StepReport
from headway.train.local_ranks import LocalRanks
from headway.train.ray_ranks import RayRanks
from headway.train.setup import Setup


class Ranks(Protocol):
    """The processes of all ranks, which run from when it is made on."""

    @property
    def pids(self) -> tuple[int, ...]:
        """Of each rank, on the machine that it runs on."""

    def news(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """What ranks tell, and which one; until all have ended. UnavailableError says which one died."""

    def death(self) -> UnavailableError | None:
        """Says which rank was killed; None where none was found dead after a moment."""

    def stop(self) -> None:
        """Asks all to end behind the step that they are in."""

    def end(self) -> None:
        """Kills what is left."""


class Gang:
    """One that dies takes the others with it, as they wait for it."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks

    @property
    def pids(self) -> tuple[int, ...]:
        return self._ranks.pids

    def stop(self) -> None:
        """Asks all ranks to end behind the step that they are in."""
        self._ranks.stop()

    def reports(self) -> Iterator[StepReport]:
        """What rank 0 reports, until all ranks have ended.

        Raises:
            HeadwayError: a rank's own; where one died, UnavailableError says which, and no rank is left.
        """
        try:
            for _, document in self._ranks.news():
                if "error" in document:
                    raise self._cause(from_document(Fault, document["error"]).raised())
                yield from_document(StepReport, document)
        finally:
            self._ranks.end()

    def _cause(self, error: HeadwayError) -> HeadwayError:
        """A rank that was killed, rather than what those say that waited for it."""
        return (isinstance(error, UnavailableError) and self._ranks.death()) or error


def train(
    setup: Setup, *, started: Callable[[Gang], None], restarted: Callable[[HeadwayError], None]
) -> Iterator[StepReport]:
    """Runs a run to its end, from its last checkpoint where there is one.

    Args:
        started: is given each gang.
        restarted: is told why the ranks begin again.

    Raises:
        HeadwayError: of the last attempt.
    """
    left = setup.job.restarts
    while True:
        gang = Gang(RayRanks(setup) if setup.job.ray else LocalRanks(setup))
        started(gang)
        try:
            yield from gang.reports()
        except UnavailableError as error:
            if not left:
                raise
            left -= 1
            restarted(error)
        else:
            return
