"""A model's output, told apart into words and tool calls as it comes."""

import re
from abc import ABC, abstractmethod
from typing import Protocol, TypeAlias

from headway.gateway.text.stop import num_overlapping
from headway.gateway.tools.call import CallDelta, CallScanner
from headway.gateway.tools.reasoning import Reasoning
from headway.gateway.tools.tool import Toolbox

Piece: TypeAlias = str | Reasoning | CallDelta
"""Words, thoughts, or what came of a call."""

CALL_START, CALL_END = "<tool_call>", "</tool_call>"


class AnswerParser(Protocol):
    """Reads one answer; however its text is cut, the pieces add up to the same.

    Attributes:
        num_calls: calls so far.
    """

    num_calls: int

    def push(self, text: str) -> list[Piece]:
        """Takes new text and returns the pieces that are certain now."""

    def flush(self) -> list[Piece]:
        """Returns the pieces that were held back. Call it when no more text comes."""


class ToolParser(ABC):
    """Reads words and calls that are JSON objects; implements `AnswerParser`."""

    def __init__(self, toolbox: Toolbox) -> None:
        self.num_calls = 0
        self._toolbox = toolbox
        self._held = ""  # words that may still be the start of a call, or white space that may stand before one
        self._scanner: CallScanner | None = None

    def push(self, text: str) -> list[Piece]:
        pieces: list[Piece] = []
        rest = text
        while rest and not self._is_done:
            if self._scanner is None:
                rest = self._read_words(rest, pieces)
            else:
                rest = self._read_call(self._scanner, rest, pieces)
        return pieces

    def flush(self) -> list[Piece]:
        words = self._held
        if self._scanner is not None and not self._scanner.is_call:
            words += self._spoil(self._scanner)
        self._held, self._scanner = "", None
        return [words] if words and not (self.num_calls and words.isspace()) else []

    @property
    def _is_done(self) -> bool:
        """Whether the only call that was wanted is there; what follows is dropped."""
        return self.num_calls > 0 and self._scanner is None and not self._toolbox.is_parallel

    def _open_call(self) -> None:
        self._scanner = CallScanner(self.num_calls, names=self._toolbox.names)

    def _read_call(self, scanner: CallScanner, text: str, pieces: list[Piece]) -> str:
        """The text behind the call, once that is over."""
        pieces += scanner.push(text)
        if not scanner.is_complete:
            return ""
        if scanner.is_call:
            self.num_calls += 1
        else:
            pieces.append(self._held + self._spoil(scanner))
        self._held, self._scanner = "", None
        return scanner.rest

    @abstractmethod
    def _read_words(self, text: str, pieces: list[Piece]) -> str:
        """Takes text up to the start of the next call, where it opens one; returns the text behind that."""

    @abstractmethod
    def _spoil(self, scanner: CallScanner) -> str:
        """The words that a supposed call was."""


class TaggedParser(ToolParser):
    """Calls between tags, anywhere in the text: Hermes, Qwen and many others."""

    _START = re.compile(re.escape(CALL_START))
    _START_OR_END = re.compile(f"{re.escape(CALL_START)}|{re.escape(CALL_END)}")

    def __init__(self, toolbox: Toolbox) -> None:
        super().__init__(toolbox)
        self._is_behind_call = False

    def _read_words(self, text: str, pieces: list[Piece]) -> str:
        text, self._held = self._held + text, ""
        match = (self._START_OR_END if self._is_behind_call else self._START).search(text)
        if match is None:
            num_held = max(num_overlapping(text, CALL_START), num_overlapping(text, CALL_END))
            words = text[: len(text) - num_held].rstrip()
            self._held = text[len(words) :]
        else:
            words = text[: match.start()].rstrip()
            if match[0] == CALL_START:
                self._open_call()
                self._held = text[len(words) : match.start()]
        if self._is_behind_call:
            words = words.lstrip()
        if words:
            pieces.append(words)
        self._is_behind_call = self._is_behind_call and not words
        return "" if match is None else text[match.end() :]

    def _read_call(self, scanner: CallScanner, text: str, pieces: list[Piece]) -> str:
        rest = super()._read_call(scanner, text, pieces)
        self._is_behind_call = scanner.is_complete and scanner.is_call
        return rest

    def _spoil(self, scanner: CallScanner) -> str:
        return CALL_START + scanner.raw


class BareParser(ToolParser):
    """A text that is nothing but calls, or has none: Llama 3. Semicolons may stand between calls."""

    def __init__(self, toolbox: Toolbox) -> None:
        super().__init__(toolbox)
        self._is_words = False

    def _read_words(self, text: str, pieces: list[Piece]) -> str:
        text, self._held = self._held + text, ""
        start = text.lstrip(" \t\r\n;" if self.num_calls else " \t\r\n")
        if self._is_words:
            pieces.append(text)
        elif not start:
            self._held = text
        elif start.startswith("{"):
            self._open_call()
            return start
        else:
            self._is_words = True
            pieces.append(text)
        return ""

    def _spoil(self, scanner: CallScanner) -> str:
        self._is_words = True
        return scanner.raw
