"""What is done for sequences before they come to the engine, which would stand still meanwhile."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from headway.core.engine_kind import Feature
from headway.core.errors import InvalidArgumentError
from headway.core.prefix_source import PrefixSource
from headway.core.request import GenerationRequest, Guide
from headway.worker.loaded_model import LoadedModel
from headway.worker.runners import GeneratorRunner
from headway.worker.transfer.prefix import Fetch, PrefixFetches


class Preparation:
    """Compiles guides in a thread, one at a time: whoever sends many waits for them, and the engine has its cores. It
    fetches blocks of prompts.
    """

    def __init__(self, fetch: Fetch) -> None:
        self._prefixes = PrefixFetches(fetch)
        self._compiling = asyncio.Lock()

    def of(
        self, request: GenerationRequest, *, loaded: LoadedModel, source: PrefixSource | None
    ) -> Coroutine[Any, Any, None] | None:
        """What the sequences of a request's prompt are to wait for; None for nothing.

        It raises InvalidArgumentError where their guide cannot be followed, or is too much.
        """
        guide = request.sampling.guide
        return None if guide is None and source is None else self._prepare(request, guide, loaded, source)

    async def _prepare(
        self, request: GenerationRequest, guide: Guide | None, loaded: LoadedModel, source: PrefixSource | None
    ) -> None:
        if guide is not None:
            await self._compile(guide, loaded.own_engine(Feature.GUIDED).runner)
        if source is not None:
            await self._prefixes.bring(loaded, request, source)

    async def _compile(self, guide: Guide, runner: GeneratorRunner) -> None:
        async with self._compiling:
            fault = await asyncio.to_thread(runner.prepare, guide)
        if fault:
            raise InvalidArgumentError(
                f"The {guide.kind.replace('_', ' ')} cannot be followed: {fault.rstrip('.')}.",
                hint="Make it simpler.",
                field="guide",
            )
