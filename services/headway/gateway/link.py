"""One token stream per worker, shared by every sequence that runs there."""

import asyncio
import contextvars
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeAlias

from headway.core.errors import HeadwayError, UnavailableError
from headway.core.request import SequenceOutput
from headway.gateway.client import Cancel, Failure, PlainToken, StepOutputs, Submit, TokenStreamClient
from headway.gateway.errors import WorkerLeavingError
from headway.gateway.output_queue import OutputQueue

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LinkLost:
    """The stream broke, and the worker cancelled what ran on it.

    Attributes:
        was_open: False where it never came up.
        is_leaving: whether the worker said before that it ends, in good order.
    """

    error: HeadwayError
    was_open: bool
    is_leaving: bool = False


Delivery: TypeAlias = PlainToken | SequenceOutput | Failure | LinkLost


class WorkerLink:
    """A gateway's stream to one worker. It opens with the first submission; once broken it is not used again.

    Attributes:
        is_broken: whether it takes no more submissions.
    """

    def __init__(self, endpoint: str, client: TokenStreamClient) -> None:
        self._endpoint = endpoint
        self._client = client
        self._output_queues: dict[str, OutputQueue[Delivery]] = {}
        self._actions: OutputQueue[Submit | Cancel | None] = OutputQueue()  # None: no more
        self._was_open = False
        self.is_broken = False

    def submit(self, group: Submit, output_queue: OutputQueue[Delivery]) -> None:
        """The outputs of one prompt's sequences come into `output_queue`; after a LinkLost there, none do."""
        self._output_queues.update((request.request_id, output_queue) for request in group.requests)
        self._actions.put(group)

    def cancel(self, sequence_ids: Iterable[str]) -> None:
        """No output of the sequences is delivered from now on; the worker stops all of them within a step."""
        running = tuple([each for each in sequence_ids if self._output_queues.pop(each, None) is not None])
        if running and not self.is_broken:
            self._actions.put(Cancel(running))

    async def run(self) -> None:
        """Delivers until the stream breaks."""
        error: HeadwayError = UnavailableError(f"The worker at {self._endpoint} ended the stream.")
        try:
            stream = self._client.generate(self._endpoint, self._outgoing(), refuse=self._refuse)
            async with aclosing(stream) as steps:
                async for step in steps:
                    self._deliver(step)
        except HeadwayError as fault:
            error = fault
        finally:
            self._break(error)

    async def _outgoing(self) -> AsyncIterator[Submit | Cancel]:
        while True:
            for action in await self._actions.take():
                if action is None:
                    return
                yield action
                self._was_open = True  # the transport took it

    def _deliver(self, step: StepOutputs) -> None:
        """The youngest sequences come first: a first token is waited for more than those that follow."""
        output_queues = self._output_queues
        for output in reversed(step.others):
            if isinstance(output, Failure):
                output_queue = output_queues.pop(output.sequence_id, None)
            elif output.finish_reason is not None:
                output_queue = output_queues.pop(output.request_id, None)
            else:
                output_queue = output_queues.get(output.request_id)
            if output_queue is not None:  # None: cancelled while the step ran
                output_queue.put(output)
        for token in reversed(step.plain):
            output_queue = output_queues.get(token[0])
            if output_queue is not None:
                output_queue.put(token)

    def _refuse(self, failure: Failure) -> None:
        self._deliver(StepOutputs([], [failure]))

    def _break(self, error: HeadwayError) -> None:
        self.is_broken = True
        if self._output_queues:
            log.warning("lost the worker at %s with %d sequences: %s", self._endpoint, len(self._output_queues), error)
        is_leaving = isinstance(error, WorkerLeavingError)
        for output_queue in set(self._output_queues.values()):
            output_queue.put(LinkLost(error, self._was_open, is_leaving))
        self._output_queues.clear()
        self._actions.put(None)


class Links:
    """The links to all workers, by endpoint."""

    def __init__(self, client: TokenStreamClient) -> None:
        self._client = client
        self._links: dict[str, WorkerLink] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def to(self, endpoint: str) -> WorkerLink:
        """The link to a worker, opened anew where the last one broke."""
        link = self._links.get(endpoint)
        if link is None or link.is_broken:
            link = self._links[endpoint] = WorkerLink(endpoint, self._client)
            # Not in the context of the request that happens to come first.
            task = asyncio.create_task(link.run(), name=f"link {endpoint}", context=contextvars.Context())
            self._tasks.add(task)
            task.add_done_callback(self._on_ended)
        return link

    def is_open(self, endpoint: str) -> bool:
        """Whether a worker can be reached at once, as far as we know."""
        link = self._links.get(endpoint)
        return link is not None and not link.is_broken

    async def close(self) -> None:
        """Breaks every stream, which cancels its sequences at the worker."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _on_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._links = {endpoint: link for endpoint, link in self._links.items() if not link.is_broken}
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the link to a worker crashed", exc_info=error)
