"""A model's output, told apart into words and tool calls as it comes."""

import re
from abc import ABC, abstractmethod
from typing import ClassVar, Protocol, TypeAlias

from headway.gateway.text.stop import num_overlapping
from headway.gateway.tools.call import CallDelta, CallScanner, Scanner
from headway.gateway.tools.reasoning import Reasoning
from headway.gateway.tools.tags import CALL_END, CALL_START
from headway.gateway.tools.tool import Toolbox

Piece: TypeAlias = str | Reasoning | CallDelta
"""Words, thoughts, or what came of a call."""


class AnswerParser(Protocol):
    """Reads one answer; however its text is cut, the pieces add up to the same."""

    @property
    def num_calls(self) -> int:
        """Calls so far."""

    def push(self, text: str) -> list[Piece]:
        """Takes new text and returns the pieces that are certain now."""

    def flush(self) -> list[Piece]:
        """Returns the pieces that were held back. Call it when no more text comes."""


class WordParser:
    """Reads an answer that is words and nothing else; implements `AnswerParser`."""

    def __init__(self) -> None:
        self.num_calls = 0

    def push(self, text: str) -> list[Piece]:
        return [text] if text else []

    def flush(self) -> list[Piece]:
        return []


class ToolParser(ABC):
    """Reads words and calls; implements `AnswerParser`."""

    def __init__(self, toolbox: Toolbox) -> None:
        self.num_calls = 0
        self._toolbox = toolbox
        self._held = ""  # words that may still be the start of a call, or white space that may stand before one
        self._tag = ""  # that announced the call
        self._scanner: Scanner | None = None

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
        if self._scanner is not None:
            words = self._words_of(self._scanner)
            self.num_calls += self._scanner.num_calls
        self._held, self._scanner = "", None
        return [words] if words and not (self.num_calls and words.isspace()) else []

    @property
    def _is_done(self) -> bool:
        """Whether the only call that was wanted is there; what follows is dropped."""
        return self.num_calls > 0 and self._scanner is None and not self._toolbox.is_parallel

    def _open_call(self, tag: str = "") -> None:
        self._tag, self._scanner = tag, self._make_scanner(tag)

    def _make_scanner(self, tag: str) -> Scanner:
        """What reads the call behind a tag."""
        del tag
        return CallScanner(self.num_calls, names=self._toolbox.names)

    def _read_call(self, scanner: Scanner, text: str, pieces: list[Piece]) -> str:
        """The text behind the call, once that is over."""
        pieces += scanner.push(text)
        if not scanner.is_complete:
            return ""
        self.num_calls += scanner.num_calls
        if words := self._words_of(scanner):
            pieces.append(words)
        self._held, self._scanner = "", None
        return scanner.rest

    def _words_of(self, scanner: Scanner) -> str:
        """The words that a supposed call was."""
        return scanner.words if scanner.num_calls else self._held + self._tag + scanner.words

    @abstractmethod
    def _read_words(self, text: str, pieces: list[Piece]) -> str:
        """Takes text up to the start of the next call, where it opens one; returns the text behind that."""


class TaggedParser(ToolParser):
    """Calls behind tags, anywhere in the text. As it stands, those of Hermes, Qwen and many others.

    Attributes:
        STARTS: tags that announce a call.
        LEAD: a tag that may stand before the first; empty for none.
        ENDS: tags that may stand behind a call.
    """

    STARTS: ClassVar[tuple[str, ...]] = (CALL_START,)
    LEAD: ClassVar[str] = ""
    ENDS: ClassVar[tuple[str, ...]] = (CALL_END,)

    def __init__(self, toolbox: Toolbox) -> None:
        super().__init__(toolbox)
        self._is_behind_call = False
        self._tags = (*self.STARTS, *self.ENDS, *([self.LEAD] if self.LEAD else []))
        self._start = re.compile("|".join(map(re.escape, self.STARTS)))

    def _read_words(self, text: str, pieces: list[Piece]) -> str:
        text, self._held = self._held + text, ""
        if self._is_behind_call:
            text = text.lstrip()
            end = next((tag for tag in self.ENDS if text.startswith(tag)), "")
            if end:
                return text.removeprefix(end)
            if any(tag.startswith(text) for tag in self._tags):
                self._held = text
                return ""
            self._is_behind_call = False
        match = self._start.search(text)
        if match is None:
            num_held = max(num_overlapping(text, tag) for tag in self._tags)
            words = self._without_lead(text[: len(text) - num_held])
            self._held = text[len(words) :]
        else:
            words = self._without_lead(text[: match.start()])
            self._open_call(match[0])
            self._held = text[len(words) : match.start()]
        if words:
            pieces.append(words)
        return "" if match is None else text[match.end() :]

    def _read_call(self, scanner: Scanner, text: str, pieces: list[Piece]) -> str:
        rest = super()._read_call(scanner, text, pieces)
        self._is_behind_call = scanner.is_complete and scanner.num_calls > 0
        return rest

    def _without_lead(self, text: str) -> str:
        """Words without what may stand between them and a call: white space, and the tag before the first."""
        words = text.rstrip()
        while self.LEAD and words.endswith(self.LEAD):
            words = words.removesuffix(self.LEAD).rstrip()
        return words


class BareParser(ToolParser):
    """A text that is nothing but calls, or has none: Llama 3. Semicolons may stand between calls.

    Attributes:
        OPENING: the character that a call begins with.
    """

    OPENING: ClassVar[str] = "{"

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
        elif start.startswith(self.OPENING):
            self._held = text[: len(text) - len(start)]
            self._open_call()
            return start
        else:
            self._is_words = True
            pieces.append(text)
        return ""

    def _read_call(self, scanner: Scanner, text: str, pieces: list[Piece]) -> str:
        rest = super()._read_call(scanner, text, pieces)
        self._is_words = scanner.is_complete and bool(scanner.words)
        return rest
