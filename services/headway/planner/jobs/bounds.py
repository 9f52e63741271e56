"""What searches may use of the machines: the planner's settings say it, and no caller."""

from dataclasses import dataclass, replace

from headway.core.errors import InvalidArgumentError
from headway.core.search_job import SearchWork

_IN_PROCESSES = frozenset({"placement", "training"})
"""Kinds of searches that try candidates at once."""
_MAX_ON_RAY = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchBounds:
    """Where searches run, and in how many processes.

    Attributes:
        max_processes: of this machine that one search may have.
        ray: address of the Ray cluster where searches try their candidates; empty for this machine.
    """

    max_processes: int = 4
    ray: str = ""

    def applied(self, work: SearchWork) -> SearchWork:
        """Returns the work as it is done here.

        Raises:
            InvalidArgumentError: it asks for more processes than it may have, or for a cluster.
        """
        if work.kind not in _IN_PROCESSES:
            return work
        request = work.request
        if request.get("ray"):
            raise InvalidArgumentError(
                "A search cannot choose its Ray cluster.",
                hint="The planner's own setting does: HEADWAY_RAY in its environment.",
                field="ray",
            )
        processes, most = request.get("processes"), _MAX_ON_RAY if self.ray else self.max_processes
        if processes is not None and not (isinstance(processes, int) and 1 <= processes <= most):
            raise InvalidArgumentError(
                f"processes is {processes!r}, it must be a number from 1 to {most}.",
                hint="The planner's own setting allows more: HEADWAY_MAX_PROCESSES in its environment.",
                field="processes",
            )
        return replace(work, request={**request, "ray": self.ray}) if self.ray else work
