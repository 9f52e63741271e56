"""Server-sent events of a streamed completion, timed as they arrive."""

from collections.abc import Callable
from typing import Any

import orjson

END_OF_EVENT = b"\n\n"
DATA_PREFIX = b"data:"
DONE = b"[DONE]"


class CompletionStream:
    """Keeps the body of one streamed completion, and reads it when it is over.

    Attributes:
        token_times_s: arrival of each event that carried text, by `clock`.
        num_tokens: output tokens by the stream's own `usage`; None until it has come.
        error: what went wrong according to the stream; empty if nothing.
        done: whether the end marker has come.
        texts: of the events that carried text.
    """

    __slots__ = ("_clock", "_pieces", "done", "error", "num_tokens", "texts", "token_times_s")

    def __init__(self, clock: Callable[[], float]) -> None:
        self.token_times_s: list[float] = []
        self.texts: list[str] = []
        self.num_tokens: int | None = None
        self.error = ""
        self.done = False
        self._clock = clock
        self._pieces: list[tuple[float, bytes]] = []

    def feed(self, body: bytes) -> None:
        """Take the next bytes, however they are cut."""
        self._pieces.append((self._clock(), body))

    def read(self) -> None:
        """The body is over; what is left behind its last event may be an error document instead of events."""
        rest, now_s = b"", 0.0
        for now_s, body in self._pieces:
            *events, rest = (rest + body).replace(b"\r\n", b"\n").split(END_OF_EVENT)
            for event in events:
                if event.startswith(DATA_PREFIX):
                    self._read_data(event[len(DATA_PREFIX) :].strip(), now_s)
        self._pieces.clear()
        if rest:
            self._read_data(rest.strip().removeprefix(DATA_PREFIX).strip(), now_s)

    def _read_data(self, data: bytes, now_s: float) -> None:
        if data == DONE:
            self.done = True
            return
        try:
            document = orjson.loads(data)
        except orjson.JSONDecodeError:
            self.error = f"not JSON: {data[:200]!r}"
            return
        if isinstance(document, dict):
            self._read_document(document, now_s)
        else:
            self.error = f"not a JSON object: {data[:200]!r}"

    def _read_document(self, document: dict[str, Any], now_s: float) -> None:
        if "error" in document:
            self.error = error_message(document["error"])
        if text := "".join(choice.get("text") or "" for choice in document.get("choices", ())):
            self.token_times_s.append(now_s)
            self.texts.append(text)
        if usage := document.get("usage"):
            self.num_tokens = usage["completion_tokens"]


def error_message(error: object) -> str:
    """OpenAI wraps errors in an object, some servers send a bare string."""
    return str(error.get("message", error)) if isinstance(error, dict) else str(error)
