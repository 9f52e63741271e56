"""The progress of a search for a plan, whatever kind of plan it is."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchProgress:
    """The progress of a search.

    Attributes:
        phase: what it does, in words.
        done, total: steps of the phase; 0 of 0 where they are not counted.
        best: the best so far, as a document of the search's own: what it can go on from. None where there is none yet,
            or none that is new.
        best_figure: how good that is, in words.
        elapsed_s: seconds that it has run; whoever runs it fills them in.
    """

    phase: str
    done: int = 0
    total: int = 0
    best: dict[str, Any] | None = None
    best_figure: str = ""
    elapsed_s: float = 0.0
