"""The keys that are made and revoked while the stack runs, as one gateway knows them."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from headway.core.api_key import ApiKeyRecord, KeyState
from headway.core.errors import HeadwayError, ResourceExhaustedError, UnauthenticatedError, UnavailableError
from headway.gateway.request_rate import RequestRate

log = logging.getLogger(__name__)

_READ_EVERY_S = 1.0
_RETRY_S = 1.0


class KeyBook(Protocol):
    """Where the keys are kept."""

    async def all(self) -> list[ApiKeyRecord]:
        """All keys that were ever made."""


class KeyRing:
    """Keeps up with the book; the last known keys stay while that is away. A book in which there ever was a key asks
    all clients for one, though none be left that opens anything: keys are never deleted, so where it is empty
    afterwards it was lost.

    Args:
        book: None for a ring without keys.
        wall_clock: seconds since 1970.
        clock: monotonic seconds.
    """

    def __init__(self, book: KeyBook | None, *, wall_clock: Callable[[], float], clock: Callable[[], float]) -> None:
        self._book = book
        self._wall_clock = wall_clock
        self._clock = clock
        self._records: Mapping[str, ApiKeyRecord] = {}  # by hash
        self._is_known = book is None
        self._rates: dict[str, RequestRate] = {}  # by id of the key

    @property
    def asks(self) -> bool:
        """Whether clients need a key; also where it is not known yet."""
        return bool(self._records) or not self._is_known

    async def watch(self) -> None:
        """Keeps up for as long as the process lives."""
        while True:
            await self.catch_up()
            await asyncio.sleep(_READ_EVERY_S)

    async def catch_up(self) -> None:
        """Reads the book, if it can be read."""
        if self._book is None:
            return
        try:
            records = await self._book.all()
        except HeadwayError as error:
            log.warning("keeping the last known API keys: %s", error)
            return
        if self._records and not records:
            log.warning("keeping the last known API keys: the book was lost")
            return
        known = {record.key_id: record for record in self._records.values()}
        records = [record if record.hashed else known.get(record.key_id, record) for record in records]
        self._records, self._is_known = {record.hashed: record for record in records}, True
        self._rates = {key_id: rate for record in records if (rate := self._rates.get(key_id := record.key_id))}

    def find(self, hashed: str) -> ApiKeyRecord | None:
        """The key of a hash; None if it is unknown, or opens nothing any more. Who can choose a key cannot choose its
        hash, so that the time of the search tells nothing."""
        record = self._records.get(hashed)
        return record if record is not None and record.state(self._wall_clock()) is KeyState.ACTIVE else None

    def admit(self, hashed: str) -> None:
        """Counts a request that is sent with a key.

        Raises:
            UnauthenticatedError: the key is unknown, or opens nothing any more.
            ResourceExhaustedError: it was used too often.
            UnavailableError: the keys have not been read since the gateway's start.
        """
        if not self._is_known:
            raise UnavailableError(
                "The gateway has not read the API keys yet.", hint="Try again in a moment.", retry_after_s=_RETRY_S
            )
        record = self.find(hashed)
        if record is None:
            known = self._records.get(hashed)
            state = "not valid" if known is None else str(known.state(self._wall_clock()))
            raise UnauthenticatedError(
                f"The API key is {state}.", hint="Ask the operator of this server for one: `headway key create`."
            )
        if record.requests_per_minute is None:
            return
        rate = self._rates.get(record.key_id)
        if rate is None or rate.per_minute != record.requests_per_minute:
            rate = self._rates[record.key_id] = RequestRate(record.requests_per_minute, clock=self._clock)
        if (wait_s := rate.take()) > 0:
            raise ResourceExhaustedError(
                f"The API key may be used for {record.requests_per_minute} requests a minute.",
                hint="Try again later, or ask the operator of this server for more.",
                retry_after_s=wait_s,
            )
