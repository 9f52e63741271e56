"""A search for a plan as a job that outlives whoever asked for it."""

import hashlib
import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from headway.core.codec import to_document
from headway.core.fault import Fault
from headway.core.search_progress import SearchProgress

_MADE_AT = "created_at_s"
_ID_DIGITS = 12


class SearchState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    """Ended by a wish, with the best until then as its result if there was any."""
    FAILED = "failed"

    @property
    def has_ended(self) -> bool:
        return self in (SearchState.DONE, SearchState.STOPPED, SearchState.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchWork:
    """The work of a search job.

    Attributes:
        kind: the kind of search, such as 'placement'.
        request: what is searched; its form is the kind's own.
        time_limit_s: seconds after which the search takes the best so far; None lets it come to its end.
        version: Headway's: another one may find something better.
    """

    kind: str
    request: dict[str, Any]
    time_limit_s: float | None = None
    version: str = ""

    @property
    def job_id(self) -> str:
        """The same for the same work, however often and whenever its parts were made."""
        text = json.dumps(_timeless(to_document(self)), sort_keys=True)
        return f"{self.kind}-{hashlib.sha256(text.encode()).hexdigest()[:_ID_DIGITS]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchJob:
    """The progress of a search job.

    Attributes:
        title: what is searched, in words.
        fault: why it failed, or has nothing though it was stopped.
        created_at_s, started_at_s, ended_at_s: seconds since 1970; 0 where it is not so far.
    """

    job_id: str
    kind: str
    title: str = ""
    state: SearchState = SearchState.QUEUED
    progress: SearchProgress = field(default_factory=lambda: SearchProgress(phase=""))
    fault: Fault | None = None
    created_at_s: float
    started_at_s: float = 0.0
    ended_at_s: float = 0.0


def _timeless(document: Any) -> Any:
    if isinstance(document, dict):
        return {name: _timeless(item) for name, item in document.items() if name != _MADE_AT}
    return [_timeless(item) for item in document] if isinstance(document, list) else document
