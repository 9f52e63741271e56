"""Prefixes that stay resident: told to the engine, and computed by a request of our own where nobody has yet."""

import uuid
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass

from headway.core.engine_kind import Feature
from headway.core.errors import HeadwayError
from headway.core.request import GenerationRequest, SamplingParams
from headway.engine.engine import Engine
from headway.engine.pins import PinnedPrefix
from headway.worker.engine_thread import EngineThread
from headway.worker.loaded_model import LoadedModel
from headway.worker.sessions import Refusal, Session


@dataclass(frozen=True, slots=True, kw_only=True)
class PinState:
    """How much of a pinned prefix is resident.

    Attributes:
        fault: why part of it is not resident; empty when all of it is.
    """

    name: str
    num_blocks: int = 0
    fault: str = ""


async def set_pins(loaded: LoadedModel, pins: Mapping[str, tuple[int, ...]]) -> list[PinState]:
    """Pins exactly these prefixes, token ids by name, and computes those that are not resident."""
    for known in await _thread(loaded).call(lambda engine: engine.pinned_prefixes()):
        if known.pin_id not in pins:
            await _unpin(loaded, known.pin_id)
    return [await _pin(loaded, name, token_ids) for name, token_ids in pins.items()]


def _thread(loaded: LoadedModel) -> EngineThread[Engine]:
    return loaded.own_engine(Feature.PINS).thread


async def _pin(loaded: LoadedModel, name: str, token_ids: tuple[int, ...]) -> PinState:
    try:
        await _thread(loaded).call(lambda engine: engine.pin(name, token_ids))
    except HeadwayError as error:
        await _unpin(loaded, name)  # what the name stood for before is not wanted any more
        return PinState(name=name, fault=error.message)
    fault = ""
    prefix = await _find(loaded, name)
    if prefix.num_resident_blocks < prefix.num_blocks:
        fault = await _compute(loaded, name, token_ids)
        prefix = await _find(loaded, name)
    if prefix.num_resident_blocks < prefix.num_blocks:
        fault = fault or f"only {prefix.num_resident_blocks} of {prefix.num_blocks} blocks are computed"
    return PinState(name=name, num_blocks=prefix.num_resident_blocks, fault=fault)


async def _find(loaded: LoadedModel, name: str) -> PinnedPrefix:
    prefixes = await _thread(loaded).call(lambda engine: engine.pinned_prefixes())
    return next(prefix for prefix in prefixes if prefix.pin_id == name)


async def _unpin(loaded: LoadedModel, name: str) -> None:
    await _thread(loaded).call(lambda engine: engine.unpin(name))


async def _compute(loaded: LoadedModel, name: str, token_ids: tuple[int, ...]) -> str:
    """Runs the prefix as a prompt; returns why it could not, or nothing."""
    request = GenerationRequest(
        request_id=f"pin-{name}-{uuid.uuid4().hex[:8]}",
        model=loaded.order.model,
        prompt_token_ids=token_ids,
        sampling=SamplingParams(max_tokens=1, temperature=0.0),
    )
    session = Session()
    try:
        session.submit([request], to=loaded.sessions)
        session.finish()
        async with aclosing(session.steps()) as steps:
            async for outputs in steps:
                for output in outputs:
                    if isinstance(output, Refusal):
                        return output.error.message
                    if output.error:
                        return output.error
    finally:
        session.close()
    return ""
