"""What a gateway keeps of a stream while it goes, so that the client can take it up again at any gateway."""

import logging
import uuid
from collections.abc import Sequence
from typing import Protocol

from headway.core.answer_record import AnswerRecord
from headway.core.errors import FailedPreconditionError, HeadwayError, NotFoundError
from headway.core.request import SequenceOutput

log = logging.getLogger(__name__)

_HEADER = "last-event-id"
_MAX_NUMBERS = 1 << 17  # some 10 MB in Redis, and a second to tell again


class AnswerBook(Protocol):
    """Where journals are kept. Who began an answer, or took it last, is its owner and alone may write."""

    async def begin(self, record: AnswerRecord, *, owner: str) -> None:
        """Keeps a record."""

    async def append(self, answer_id: str, outputs: Sequence[SequenceOutput], *, owner: str, has_ended: bool) -> str:
        """Adds outputs if the owner is still the same; returns who it is, empty where the answer is kept no longer.

        Args:
            has_ended: whether they are the last ones, so that it need not be kept for long.
        """

    async def forget(self, answer_id: str, *, owner: str) -> None:
        """Keeps an answer no longer, if the owner is still the same."""

    async def find(self, answer_id: str) -> AnswerRecord | None:
        """The record without its outputs; None where there is none."""

    async def take(self, record: AnswerRecord, *, owner: str) -> AnswerRecord:
        """The record with its outputs, for its new owner."""


class AnswerJournal:
    """The journal of one answer at the gateway that owns it. A new one is in the book from its first output on, and
    until it has grown too long: many samples with log probabilities would fill Redis.

    Attributes:
        record: as it was when this gateway began or took it.
        is_kept: whether all outputs until now are in the journal.
    """

    def __init__(self, book: AnswerBook, record: AnswerRecord) -> None:
        self.record = record
        self.is_kept = True
        self._book = book
        self._owner = uuid.uuid4().hex
        self._has_begun = False
        self._num_numbers = 0

    @classmethod
    async def take(cls, book: AnswerBook, answer_id: str, *, tenant: str, body_hash: str) -> "AnswerJournal":
        """The journal of an answer that another gateway, or an earlier connection, has begun.

        Raises:
            NotFoundError: no such answer is kept for the tenant.
            FailedPreconditionError: it answers another request.
        """
        record = await book.find(answer_id)
        if record is None or record.tenant != tenant:
            raise NotFoundError(
                "The stream of this Last-Event-ID is not kept, or no longer.",
                hint="Streams are kept for ten minutes, ended ones for one: send the request without Last-Event-ID.",
                field=_HEADER,
            )
        if record.body_hash != body_hash:
            raise FailedPreconditionError(
                "The stream of this Last-Event-ID answers another request.",
                hint="Send the same body to the same path.",
                field=_HEADER,
            )
        journal = cls(book, record)
        journal.record, journal._has_begun = await book.take(record, owner=journal._owner), True
        journal._num_numbers = sum(map(_num_numbers, journal.record.outputs))
        return journal

    async def note(self, outputs: Sequence[SequenceOutput], *, has_ended: bool) -> None:
        """Keeps outputs before the client sees them. Where that cannot be done the stream goes on without.

        Raises:
            FailedPreconditionError: the client has taken the stream up elsewhere.
        """
        if not outputs or not self.is_kept:
            return
        try:
            if not self._has_begun:
                await self._book.begin(self.record, owner=self._owner)
                self._has_begun = True
            self._num_numbers += sum(map(_num_numbers, outputs))
            if self._num_numbers > _MAX_NUMBERS:
                self.is_kept = False
                log.info("%s has grown too long to be taken up again", self.record.answer_id)
                await self._book.forget(self.record.answer_id, owner=self._owner)
                return
            present = await self._book.append(self.record.answer_id, outputs, owner=self._owner, has_ended=has_ended)
        except HeadwayError as error:
            log.warning("%s cannot be taken up again: %s", self.record.answer_id, error)
            self.is_kept = False
            return
        self.is_kept = bool(present)
        if present not in ("", self._owner):
            raise FailedPreconditionError("The stream goes on at another connection.", field=_HEADER)


def _num_numbers(output: SequenceOutput) -> int:
    """Its tokens, and the log probabilities that come with them."""
    told = (*output.logprobs, *output.prompt_logprobs)
    return len(output.token_ids) + sum([1 + len(entry.top) for entry in told])
