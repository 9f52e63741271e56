"""Keeps a request that takes workers down from taking down the next one, at all gateways of a stack.

When a worker dies, all that ran there goes on elsewhere, whoever was to blame. A request that had got nothing from the
worker is a *suspect*: those that kill do so when they are computed first, and again when they are computed anew.
Suspects of a model are tried one at a time, each until something comes of it. If the worker of one that is tried dies
before that, it has taken down two workers: it ends with an error, and so does the same request for an hour, since
clients repeat what failed. One that kills only after some tokens is a suspect from its second worker on. Once something
has come of one, all that ask the same are none any more, and those of them that wait go on at once.

Gateways tell each other of both, by a book that they look into every half second; a suspect that its client takes to
another gateway is one there, too. While the book cannot be read each goes by what it knows.
"""

import asyncio
import hashlib
import logging
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from headway.core.errors import HeadwayError, InvalidArgumentError
from headway.core.request import GenerationRequest
from headway.core.suspicion import Suspicion
from headway.gateway.infer.job import InferJob

log = logging.getLogger(__name__)

_RETENTION_S = 3600.0
_LOOK_EVERY_S = 0.5
_TURN_EVERY_S = 0.05


class QuarantineBook(Protocol):
    """What gateways tell each other of requests, by their fingerprints. UnavailableError while it is away."""

    async def put(self, fingerprint: str, suspicion: Suspicion) -> None:
        """Keeps a fingerprint for an hour from now on."""

    async def clear(self, fingerprint: str) -> None:
        """Forgets a suspect."""

    async def read(self, suspicion: Suspicion) -> Mapping[str, float]:
        """The seconds that each is known for yet."""

    async def take_turn(self, model: str, *, owner: str) -> bool:
        """Whether it is this suspect's turn now, among those of a model; it is for a few seconds from then on."""

    async def end_turn(self, model: str, *, owner: str) -> None:
        """Passes the turn on, if it still is that suspect's."""


class Quarantine:
    """The requests that are known to take workers down, and the turns of those that may.

    Args:
        clock: monotonic seconds.
        book: None for a gateway that has no others.
    """

    def __init__(self, clock: Callable[[], float], book: QuarantineBook | None = None) -> None:
        self._clock = clock
        self._book = book
        self._known: dict[Suspicion, dict[str, float]] = {each: {} for each in Suspicion}  # until when
        self._unwritten: dict[str, Suspicion | None] = {}
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._owner = uuid.uuid4().hex
        self._waiting: Counter[str] = Counter()  # suspects here, by model
        self._held: set[str] = set()  # models whose turn is this gateway's
        self._ended: set[str] = set()
        self._has_news = asyncio.Event()

    async def watch(self) -> None:
        """Tells others, and hears of them, for as long as the process lives."""
        while True:
            try:
                await self.catch_up()
            except HeadwayError as error:
                log.warning("going by what this gateway knows of suspects: %s", error)
                await asyncio.sleep(_LOOK_EVERY_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY_S):
                    await self._has_news.wait()

    async def catch_up(self) -> None:
        """Tells what is new here, then takes in what others know; UnavailableError where the book is away."""
        if (book := self._book) is None:
            return
        self._has_news.clear()
        for model in list(self._ended):
            await book.end_turn(model, owner=self._owner)
            self._ended.discard(model)
        for model in list(self._held):
            await book.take_turn(model, owner=self._owner)
        for fingerprint, suspicion in list(self._unwritten.items()):
            await (book.clear(fingerprint) if suspicion is None else book.put(fingerprint, suspicion))
            if self._unwritten.get(fingerprint) is suspicion:
                del self._unwritten[fingerprint]
        for suspicion, known in self._known.items():
            heard = await book.read(suspicion)
            now_s = self._clock()
            if suspicion is Suspicion.SUSPECT:  # others clear them, too
                for fingerprint in known.keys() - heard.keys() - self._unwritten.keys():
                    del known[fingerprint]
            known |= {each: now_s + left_s for each, left_s in heard.items() if each not in self._unwritten}

    def knows(self, suspicion: Suspicion, fingerprint: Callable[[], str]) -> bool:
        """Whether a request is suspected so. Its fingerprint takes a while, so it is only taken where any is."""
        known, now_s = self._known[suspicion], self._clock()
        if not known:
            return False
        for each in [each for each, until_s in known.items() if until_s <= now_s]:
            del known[each]
        return bool(known) and fingerprint() in known

    def note(self, fingerprint: str, suspicion: Suspicion | None) -> None:
        """Suspects a request for an hour from now on; None clears it."""
        self._known[Suspicion.SUSPECT].pop(fingerprint, None)
        if suspicion is not None:
            self._known[suspicion][fingerprint] = self._clock() + _RETENTION_S
        self._unwritten[fingerprint] = suspicion
        self._has_news.set()

    async def take_turn(self, model: str) -> None:
        """Waits until no other suspect of the model is tried at any gateway."""
        self._waiting[model] += 1
        try:
            await self._turns[model].acquire()
        finally:
            self._waiting[model] -= 1
        if model in self._held:
            return
        try:
            await self._take_from_others(model)
        except asyncio.CancelledError:
            self._ended.add(model)  # whether it was taken is not known
            self._turns[model].release()
            raise
        self._held.add(model)

    async def _take_from_others(self, model: str) -> None:
        self._ended.discard(model)
        try:
            while self._book is not None and not await self._book.take_turn(model, owner=self._owner):  # noqa: ASYNC110
                await asyncio.sleep(_TURN_EVERY_S)
        except HeadwayError as error:
            log.warning("other gateways may try suspects now: %s", error)

    def end_turn(self, model: str) -> None:
        """Passes the turn on, to another suspect here where one waits."""
        if not self._waiting[model]:
            self._held.discard(model)
            self._ended.add(model)
            self._has_news.set()
        self._turns[model].release()


class Trial:
    """What is known of one request: whether it is a suspect, and whether its turn is now.

    Args:
        fingerprint: gives what it is known by; see `generation_fingerprint`, `infer_fingerprint`.
    """

    def __init__(self, quarantine: Quarantine, *, model: str, fingerprint: Callable[[], str]) -> None:
        self._quarantine = quarantine
        self._model = model
        self._fingerprint = fingerprint
        self._is_suspect = False
        self._has_output = False  # of the worker where it is
        self._has_turn = False

    @property
    def is_on(self) -> bool:
        """Whether it is this request's turn now: the death of its worker would seal it."""
        return self._has_turn

    async def begin(self) -> None:
        """Waits for the request's turn, if it is a suspect; then it may go to a worker.

        InvalidArgumentError where it has taken down two workers within the hour.
        """
        self._has_output = False
        self._check()
        if not self._is_suspect:
            self._is_suspect = self._quarantine.knows(Suspicion.SUSPECT, self._fingerprint)
        if self._is_suspect and not self._has_turn:
            await self._quarantine.take_turn(self._model)
            self._has_turn = True
            self._check()
            if not self._quarantine.knows(Suspicion.SUSPECT, self._fingerprint):
                self._is_suspect = False  # the same request was computed meanwhile
                self.end()

    def note_output(self) -> None:
        """Clears the request: its worker has computed it, and lives."""
        if not self._has_output:
            self._has_output = True
            if self._is_suspect:
                self._is_suspect = False
                self._quarantine.note(self._fingerprint(), None)
            self.end()

    def note_death(self) -> None:
        """Its worker has died; raises what the request ends with, where that is the second one."""
        if self._has_output:
            return
        was_tried, self._is_suspect = self._has_turn, True
        self._quarantine.note(self._fingerprint(), Suspicion.SEALED if was_tried else Suspicion.SUSPECT)
        if was_tried:
            self.end()
            raise _refusal()

    def end(self) -> None:
        """Passes the turn on, if it is the request's."""
        if self._has_turn:
            self._has_turn = False
            self._quarantine.end_turn(self._model)

    def _check(self) -> None:
        if self._quarantine.knows(Suspicion.SEALED, self._fingerprint):
            self.end()
            raise _refusal()


def generation_fingerprint(request: GenerationRequest) -> str:
    """Of what a request is computed from; its seed, which the gateway draws where a client gives none, is left out."""
    return _digest((request.model, request.prompt_token_ids, replace(request.sampling, seed=0)))


def infer_fingerprint(job: InferJob) -> str:
    """Of what a job for an encoder is computed from."""
    return _digest((job.model.name, job.sequences))


def _digest(content: object) -> str:
    return hashlib.sha256(repr(content).encode()).hexdigest()


def _refusal() -> InvalidArgumentError:
    return InvalidArgumentError(
        "This request is in quarantine: two workers died while they computed it.",
        hint="Change its prompt or its options. The workers' logs say what happened; it can be tried again in an hour.",
    )
