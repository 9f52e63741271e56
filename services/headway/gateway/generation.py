"""Generation: a job in, the deltas of its sequences out. HTTP and gRPC differ only in what they make of these."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from headway.core.errors import InvalidArgumentError
from headway.gateway.best_of import best_of
from headway.gateway.job import Delta, Job
from headway.gateway.lease import Router
from headway.gateway.link import Links
from headway.gateway.measure import ModelMetrics
from headway.gateway.output_queue import OutputQueue
from headway.gateway.quarantine import Quarantine
from headway.gateway.run import Run, TextSink


class Generator:
    """Runs jobs on the workers.

    Args:
        quarantine: of requests that take workers down.
        resume_timeout_s: how long a stream whose worker died waits for another.
    """

    def __init__(self, *, router: Router, links: Links, quarantine: Quarantine, resume_timeout_s: float) -> None:
        self._router = router
        self._links = links
        self._resume_timeout_s = resume_timeout_s
        self._metrics: dict[str, ModelMetrics] = {}
        self._sole_replicas: dict[str, str] = {}
        self._quarantine = quarantine

    def generate(self, job: Job, *, text_sink: TextSink | None = None) -> AsyncGenerator[list[Delta], None]:
        """Yields the deltas of the job's sequences as they come; closing the iterator cancels what still runs.

        Args:
            text_sink: see `Run`; it takes what comes between two items of the iterator, never before the first.

        Raises:
            HeadwayError: no place, or no answer. Before the first deltas nothing was generated.
        """
        if job.journal is not None and (len(job.prompts) > 1 or job.options.selects or job.options.beam_width):
            raise InvalidArgumentError(
                "Streams of several prompts, of best_of and of beam search cannot be taken up again.",
                hint="Send one prompt, or leave the header out.",
                field="x-headway-resumable",
            )
        if len(job.prompts) == 1:
            return self._stream(job, 0, text_sink=text_sink)
        return _merge([self._stream(job, prompt_index) for prompt_index in range(len(job.prompts))])

    async def close(self) -> None:
        """Cancels what still runs."""
        await self._links.close()

    def _stream(
        self, job: Job, prompt_index: int, *, text_sink: TextSink | None = None
    ) -> AsyncGenerator[list[Delta], None]:
        if not job.options.selects:
            return self._run(job, prompt_index, text_sink=text_sink).deltas()
        return best_of(
            self._run(job, prompt_index).deltas(),
            n=job.options.n,
            first_index=prompt_index * job.options.n,
            with_logprobs=job.options.num_logprobs is not None,
        )

    def _run(self, job: Job, prompt_index: int, *, text_sink: TextSink | None = None) -> Run:
        name = job.model.name
        if name not in self._metrics:
            self._metrics[name] = ModelMetrics(name)
        return Run(
            job,
            prompt_index,
            router=self._router,
            links=self._links,
            sole_replicas=self._sole_replicas,
            metrics=self._metrics[name],
            quarantine=self._quarantine,
            resume_timeout_s=self._resume_timeout_s,
            clock=time.monotonic,
            text_sink=text_sink,
        )


async def _merge(streams: Sequence[AsyncGenerator[list[Delta], None]]) -> AsyncGenerator[list[Delta], None]:
    """Items of all streams as they come; the first error ends them all."""
    output_queue: OutputQueue[list[Delta] | None] = OutputQueue()

    async def forward(stream: AsyncGenerator[list[Delta], None]) -> None:
        async with aclosing(stream):
            async for deltas in stream:
                output_queue.put(deltas)

    tasks = [asyncio.create_task(forward(stream)) for stream in streams]
    for task in tasks:
        task.add_done_callback(lambda _: output_queue.put(None))
    num_running = len(tasks)
    try:
        while num_running:
            items = await output_queue.take()
            if deltas := [delta for item in items if item is not None for delta in item]:
                yield deltas
            if num_ended := items.count(None):
                num_running -= num_ended
                for task in tasks:
                    if task.done():
                        task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
