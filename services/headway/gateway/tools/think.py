"""Reasoning between tags, in front of the answer: DeepSeek R1, Qwen3, Magistral and many others."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from headway.core.answer_parser import ReasoningParser
from headway.gateway.text.stop import num_overlapping
from headway.gateway.tools.parser import AnswerParser, Piece
from headway.gateway.tools.reasoning import Reasoning
from headway.gateway.tools.tags import MISTRAL_THINK_END, MISTRAL_THINK_START, THINK_END, THINK_START


@dataclass(frozen=True, slots=True)
class ThinkTags:
    """What stands around reasoning."""

    start: str
    end: str

    def is_open(self, prompt: str, *, continues: bool) -> bool:
        """Whether a prompt ends within reasoning, which its template has begun.

        Args:
            continues: whether the prompt's end is a message's, which is to be continued.
        """
        return prompt.rfind(self.start) > prompt.rfind(self.end) and (continues or prompt.rstrip().endswith(self.start))


_THINK, _MISTRAL = ThinkTags(THINK_START, THINK_END), ThinkTags(MISTRAL_THINK_START, MISTRAL_THINK_END)
_NAMED: Mapping[ReasoningParser, ThinkTags | None] = {
    ReasoningParser.DEEPSEEK_R1: _THINK,
    ReasoningParser.QWEN3: _THINK,
    ReasoningParser.MISTRAL: _MISTRAL,
    ReasoningParser.HARMONY: None,
    ReasoningParser.NONE: None,
}


def think_tags_of(template: str) -> ThinkTags | None:
    """The tags that a chat template knows; None for none."""
    return next((tags for tags in (_THINK, _MISTRAL) if tags.end in template), None)


def tags_named(parser: ReasoningParser) -> ThinkTags | None:
    """The tags that a user names; None for none."""
    return _NAMED[parser]


class _Part(Enum):
    START = auto()
    REASONING = auto()
    GAP = auto()
    ANSWER = auto()


class ThinkParser:
    """Reads reasoning, and leaves what follows to another parser; implements `AnswerParser`.

    White space around either is dropped. Reasoning that does not end is all that there is.

    Args:
        is_open: whether the prompt has begun the reasoning.
    """

    def __init__(self, answer: AnswerParser, *, tags: ThinkTags, is_open: bool) -> None:
        self._answer = answer
        self._tags = tags
        self._is_open = is_open
        self._part = _Part.START
        self._has_thought = False
        self._held = ""

    @property
    def num_calls(self) -> int:
        return self._answer.num_calls

    def push(self, text: str) -> list[Piece]:
        text, self._held = self._held + text, ""
        pieces: list[Piece] = []
        if self._part is _Part.START:
            text = self._read_start(text)
        if self._part is _Part.REASONING:
            text = self._read_reasoning(text, pieces)
        if self._part is _Part.GAP and (text := text.lstrip()):
            self._part = _Part.ANSWER
        return pieces + self._answer.push(text) if self._part is _Part.ANSWER else pieces

    def flush(self) -> list[Piece]:
        held, self._held = self._held, ""
        if self._part is _Part.REASONING or (self._part is _Part.START and self._is_open):
            return [Reasoning(text)] if (text := held.rstrip()) else []
        return self._answer.push(held) + self._answer.flush()

    def _read_start(self, text: str) -> str:
        """The text behind the tag that may stand first, also where the prompt has it already."""
        start = text.lstrip()
        if self._tags.start.startswith(start) and start != self._tags.start:
            self._held = text
            return ""
        if start.startswith(self._tags.start):
            self._part = _Part.REASONING
            return start.removeprefix(self._tags.start)
        self._part = _Part.REASONING if self._is_open else _Part.ANSWER
        return text

    def _read_reasoning(self, text: str, pieces: list[Piece]) -> str:
        text = text if self._has_thought else text.lstrip()
        at = text.find(self._tags.end)
        cut = at if at >= 0 else len(text) - num_overlapping(text, self._tags.end)
        thought = text[:cut].rstrip()
        if thought:
            self._has_thought = True
            pieces.append(Reasoning(thought))
        if at >= 0:
            self._part = _Part.GAP
            return text[at + len(self._tags.end) :]
        self._held = text[len(thought) :]
        return ""
