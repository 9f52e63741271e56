"""Keeps a request that takes workers down from taking down the next one.

When a worker dies, all that ran there goes on elsewhere, whoever was to blame. A request that had got nothing from the
worker is a *suspect*: those that kill do so when they are computed first, and again when they are computed anew.
Suspects of a model are tried one at a time, each until something comes of it. If the worker of one that is tried dies
before that, it has taken down two workers: it ends with an error, and so does the same request for an hour, since
clients repeat what failed. One that kills only after some tokens is a suspect from its second worker on.
"""

import asyncio
import hashlib
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import replace

from headway.core.errors import InvalidArgumentError
from headway.core.request import GenerationRequest

_RETENTION_S = 3600.0
_MAX_KNOWN = 1024


class Quarantine:
    """The requests that are known to take workers down, and the turns of those that may.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._sealed_s: OrderedDict[bytes, float] = OrderedDict()
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def turn(self, model: str) -> asyncio.Lock:
        """Returns the lock that a suspect of a model holds while it is tried."""
        return self._turns[model]

    def check(self, request: GenerationRequest) -> None:
        """InvalidArgumentError where the request, but for its seed, has taken down two workers within the hour."""
        while self._sealed_s and next(iter(self._sealed_s.values())) <= self._clock() - _RETENTION_S:
            self._sealed_s.popitem(last=False)
        if self._sealed_s and _fingerprint(request) in self._sealed_s:
            raise _refusal()

    def seal(self, request: GenerationRequest) -> InvalidArgumentError:
        """Keeps a request from workers from now on; returns the error that it ends with."""
        self._sealed_s[_fingerprint(request)] = self._clock()
        self._sealed_s.move_to_end(_fingerprint(request))
        if len(self._sealed_s) > _MAX_KNOWN:
            self._sealed_s.popitem(last=False)
        return _refusal()


class Trial:
    """What is known of one request: whether it is a suspect, and whether its turn is now."""

    def __init__(self, quarantine: Quarantine, *, model: str) -> None:
        self._quarantine = quarantine
        self._model = model
        self._is_suspect = False
        self._has_output = False  # of the worker where it is
        self._turn: asyncio.Lock | None = None

    async def begin(self) -> None:
        """Waits for the request's turn, if it is a suspect; then it may go to a worker."""
        self._has_output = False
        if self._is_suspect and self._turn is None:
            turn = self._quarantine.turn(self._model)
            await turn.acquire()
            self._turn = turn

    def note_output(self) -> None:
        """Clears the request: its worker has computed it, and lives."""
        if not self._has_output:
            self._has_output = True
            self._is_suspect = False
            self.end()

    def note_death(self, request: GenerationRequest) -> None:
        """Its worker has died; raises what the request ends with, where that is the second one."""
        if self._has_output:
            return
        if self._turn is not None:
            self.end()
            raise self._quarantine.seal(request)
        self._is_suspect = True

    def end(self) -> None:
        """Passes the turn on, if it is the request's."""
        if self._turn is not None:
            self._turn.release()
            self._turn = None


def _fingerprint(request: GenerationRequest) -> bytes:
    """Of what a request is computed from; its seed, which the gateway draws where a client gives none, is left out."""
    content = (request.model, request.prompt_token_ids, replace(request.sampling, seed=0))
    return hashlib.sha256(repr(content).encode()).digest()


def _refusal() -> InvalidArgumentError:
    return InvalidArgumentError(
        "This request is in quarantine: two workers died while they computed it.",
        hint="Change its prompt or its options. The workers' logs say what happened; it can be tried again in an hour.",
    )
