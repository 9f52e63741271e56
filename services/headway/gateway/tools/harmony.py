"""The harmony format of gpt-oss: an answer is several messages, each of which names its channel and its recipient.

    <|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...<|return|>
    <|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>

The prompt has opened the first message, and the token that ends the answer is not in its text.
"""

import re
from collections.abc import Collection
from enum import Enum, auto

from headway.core.errors import InvalidArgumentError
from headway.core.request import Guide
from headway.gateway.text.stop import num_overlapping
from headway.gateway.tools.call import CallDelta
from headway.gateway.tools.parser import Piece
from headway.gateway.tools.reasoning import Reasoning
from headway.gateway.tools.tool import Toolbox

EFFORTS = ("low", "medium", "high")

_START, _CHANNEL, _CONSTRAIN, _MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
_END, _CALL, _RETURN = "<|end|>", "<|call|>", "<|return|>"
_TAGS = (_START, _CHANNEL, _CONSTRAIN, _MESSAGE, _END, _CALL, _RETURN)
_HEADER_TAGS = (_START, _CHANNEL, _CONSTRAIN, _MESSAGE)
_OPENING = (_START, _CHANNEL)  # tags that end a message by beginning the next

_HEADER_END = re.compile("|".join(map(re.escape, (_MESSAGE, _START, _END, _CALL, _RETURN))))
_BODY_END = re.compile("|".join(map(re.escape, (*_OPENING, _END, _CALL, _RETURN))))
_CHANNEL_NAME = re.compile(re.escape(_CHANNEL) + r"\s*(\w+)")
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_FUNCTIONS = "functions."
_BETWEEN_MESSAGES = "\n"


class _Part(Enum):
    """What a message is to the client."""

    WORDS = auto()
    REASONING = auto()
    CALL = auto()


class HarmonyParser:
    """Reads one answer; however its text is cut, the pieces add up to the same.

    A message to a function that there is is a call. What stands on the channel `analysis`, or is for a tool that is not
    the client's, is reasoning. All else is words, also an answer without any header: one that was guided, or that goes
    on with a message of the client's.

    Args:
        names: of the functions that there are.
        is_parallel: whether an answer may have several calls; else what follows the first is dropped.

    Attributes:
        num_calls: calls so far.
    """

    def __init__(self, *, names: Collection[str] = (), is_parallel: bool = True) -> None:
        self.num_calls = 0
        self._names = names
        self._is_parallel = is_parallel
        self._text = ""  # of a header that is not complete; or what may still become a tag
        self._part: _Part | None = None  # of the message that is being read; None within a header
        self._is_empty = True  # the message has no text yet
        self._begun: set[_Part] = set()  # whose text has come out

    def push(self, text: str) -> list[Piece]:
        """Takes new text and returns the pieces that are certain now."""
        pieces: list[Piece] = []
        self._text += text
        while self._text and (self._read_header(pieces) if self._part is None else self._read_body(pieces)):
            pass
        return pieces

    def flush(self) -> list[Piece]:
        """Returns the pieces that were held back. Call it when no more text comes; a header alone leaves no trace."""
        pieces: list[Piece] = []
        is_blank = bool(self._begun) and not self._text.strip()
        if self._part is None and self._text and not is_blank and not _is_header(self._text):
            self._begin(_Part.WORDS)
        if self._part is not None:
            self._tell(self._text, pieces)
            self._finish(pieces)
        self._text = ""
        return pieces

    @property
    def _is_done(self) -> bool:
        return self.num_calls > 0 and not self._is_parallel

    def _read_header(self, pieces: list[Piece]) -> bool:
        """Returns whether to read on."""
        text = self._text
        if not _may_become_header(text):
            self._begin(_Part.WORDS)
            return True
        match = _HEADER_END.search(text, len(_START) if text.startswith(_START) else 0)
        if match is None:
            return False
        if match[0] == _MESSAGE:
            self._open(text[: match.start()], pieces)
        self._text = text[match.start() if match[0] == _START else match.end() :]
        return True

    def _read_body(self, pieces: list[Piece]) -> bool:
        match = _BODY_END.search(self._text)
        if match is None:
            cut = len(self._text) - max(num_overlapping(self._text, tag) for tag in _TAGS)
            self._tell(self._text[:cut], pieces)
            self._text = self._text[cut:]
            return False
        self._tell(self._text[: match.start()], pieces)
        self._finish(pieces)
        self._text = self._text[match.start() if match[0] in _OPENING else match.end() :]
        return True

    def _open(self, header: str, pieces: list[Piece]) -> None:
        """Begins the message behind a header."""
        recipient, channel = _RECIPIENT.search(header), _CHANNEL_NAME.search(header)
        name = recipient[1] if recipient else ""
        if name.startswith(_FUNCTIONS) and name.removeprefix(_FUNCTIONS) in self._names:
            self._begin(_Part.CALL)
            if not self._is_done:
                pieces.append(CallDelta(self.num_calls, name.removeprefix(_FUNCTIONS)))
        elif name.startswith(_FUNCTIONS):
            self._begin(_Part.WORDS)
            self._tell(header + _MESSAGE, pieces)
        elif name or (channel and channel[1] == "analysis"):
            self._begin(_Part.REASONING)
        else:
            self._begin(_Part.WORDS)

    def _begin(self, part: _Part) -> None:
        self._part, self._is_empty = part, True

    def _tell(self, text: str, pieces: list[Piece]) -> None:
        """Text of the current message. Messages of one kind are one text to the client, line by line."""
        part = self._part
        assert part is not None, "there is a message"
        if not text or self._is_done:
            return
        if part is _Part.CALL:
            pieces.append(CallDelta(self.num_calls, arguments=text))
        else:
            if self._is_empty and part in self._begun:
                text = _BETWEEN_MESSAGES + text
            pieces.append(Reasoning(text) if part is _Part.REASONING else text)
        self._is_empty = False
        self._begun.add(part)

    def _finish(self, pieces: list[Piece]) -> None:
        if self._part is _Part.CALL and not self._is_done:
            if self._is_empty:
                self._tell("{}", pieces)
            self.num_calls += 1
        self._part = None


def _may_become_header(text: str) -> bool:
    """Whether a text can be the beginning of a header, or all of one and more."""
    lead, mark, rest = text.partition("<")
    tag, lead = mark + rest, lead.strip()
    return ("to=".startswith(lead) or re.fullmatch(r"to=\S+", lead) is not None) and any(
        tag.startswith(known) or known.startswith(tag) for known in _HEADER_TAGS
    )


def _is_header(text: str) -> bool:
    """Whether a text that may become a header is more than words that happen to begin like one."""
    return text.lstrip().startswith("to=") or any(tag in text for tag in _HEADER_TAGS)


class HarmonySyntax:
    """Calls as gpt-oss writes them, among its messages."""

    def parser(self, toolbox: Toolbox) -> HarmonyParser:
        return HarmonyParser(names=toolbox.names, is_parallel=toolbox.is_parallel)

    def guide(self, toolbox: Toolbox) -> Guide:
        """No guide knows the channels, so nothing can be made to be a call.

        Raises:
            InvalidArgumentError: always.
        """
        names = ", ".join(tool.name for tool in toolbox.required)
        raise InvalidArgumentError(
            f"tool_choice asks for a call ({names}), and the model writes harmony, where none can be forced.",
            hint='Set tool_choice to "auto".',
            field="tool_choice",
        )


HARMONY = HarmonySyntax()


def is_harmony(template: str) -> bool:
    """Whether a chat template writes the harmony format."""
    return all(tag in template for tag in (_START, _CHANNEL, _MESSAGE))
