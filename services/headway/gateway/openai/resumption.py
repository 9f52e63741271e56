"""Streams that a client can take up again: what it asks for in headers, and the ids of their events."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from starlette.datastructures import Headers

from headway.core.errors import InvalidArgumentError
from headway.gateway.answer_journal import AnswerJournal
from headway.gateway.job import Delta, Job
from headway.gateway.openai.answer import Events
from headway.gateway.openai.format import Format

_ASKS, _LAST_EVENT = "x-headway-resumable", "last-event-id"
_MAX_ID_CHARS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """Attributes:
    body_hash: of the path and body of the request.
    answer_id: of the stream that is to go on; empty for a new one.
    num_seen: its events that the client has.
    """

    body_hash: str
    answer_id: str = ""
    num_seen: int = 0


def resumption_of(headers: Headers, path: str, content: bytes) -> Resumption | None:
    """What a request asks for; None for a stream as any other.

    Raises:
        InvalidArgumentError: a header is none that this gateway knows.
    """
    asks, last_event_id = headers.get(_ASKS), headers.get(_LAST_EVENT)
    if asks is None and last_event_id is None:
        return None
    if asks not in (None, "0", "1", "true", "false"):
        raise InvalidArgumentError(
            f"The header {_ASKS} is '{asks[:100]}'.", hint="Send 1, or leave it out.", field=_ASKS
        )
    body_hash = hashlib.sha256(path.encode() + b"\0" + content).hexdigest()
    if last_event_id is None:
        return Resumption(body_hash=body_hash) if asks in ("1", "true") else None
    answer_id, _, number = last_event_id.rpartition(":")
    if not answer_id or not (number.isascii() and number.isdigit()) or len(last_event_id) > _MAX_ID_CHARS:
        raise InvalidArgumentError(
            f"The header Last-Event-ID is '{last_event_id[:100]}'.",
            hint=f"Send the id of the last event that came of a stream which was asked for with {_ASKS}: 1.",
            field=_LAST_EVENT,
        )
    return Resumption(body_hash=body_hash, answer_id=answer_id, num_seen=int(number))


class ResumableEvents(Events):
    """Events with ids, `ANSWER:NUMBER`, without those that the client has. What comes of an output of the worker does
    not depend on what came together with it, so that numbers are the same each time."""

    def __init__(
        self, job: Job, form: Format, *, write: Callable[[bytes], None], journal: AnswerJournal, num_seen: int
    ) -> None:
        super().__init__(job, form, write=write)
        self._journal = journal
        self._num_seen = num_seen
        self._number = 0

    def of(self, deltas: list[Delta]) -> bytes:
        return b"".join([self._numbered(super(ResumableEvents, self).of([delta])) for delta in deltas])

    def last(self) -> bytes:
        return self._numbered(super().last())

    def _numbered(self, events: bytes) -> bytes:
        """Where the journal is kept no longer, events that can be taken up from have no ids."""
        told: list[bytes] = []
        for event in events.split(b"\n\n")[:-1]:
            self._number += 1
            if self._number > self._num_seen:
                event_id = b"id: %b:%d\n" % (self._journal.record.answer_id.encode(), self._number)
                told.append((event_id if self._journal.is_kept else b"") + event + b"\n\n")
        return b"".join(told)
