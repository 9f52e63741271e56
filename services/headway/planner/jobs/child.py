"""One search in a child process: a crash, or all the memory that it takes, is its own."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from headway.core.codec import from_document, to_document
from headway.core.search_job import SearchWork
from headway.core.search_progress import SearchProgress
from headway.rpc.child import call_child

_MODULE = "headway.planner.jobs"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOrder:
    """What the child is told.

    Attributes:
        resume: the best that the same search had when it ended early.
    """

    work: SearchWork
    resume: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchAnswer:
    """What the child says: progress, and at last the result.

    Attributes:
        was_stopped: whether the search heard of the wish to stop, so that the result is only the best until then.
    """

    progress: SearchProgress | None = None
    result: dict[str, Any] | None = None
    was_stopped: bool = False


async def search_in_child(order: SearchOrder, stop: asyncio.Event) -> AsyncGenerator[SearchAnswer, None]:
    """Runs a search; closing the generator kills it, and so does the end of this process.

    Raises:
        HeadwayError: the search's own.
        UnavailableError: the child died.
    """
    answers = call_child(_MODULE, to_document(order), deadline_s=None, stop=stop)
    async with aclosing(answers):
        async for answer in answers:
            yield from_document(SearchAnswer, answer)
