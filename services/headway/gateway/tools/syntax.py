"""The syntaxes in which models write tool calls."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from headway.core.answer_parser import ToolParser
from headway.core.grammar import lark_json, lark_text
from headway.core.request import Guide, GuideKind
from headway.gateway.tools.coder import CoderParser
from headway.gateway.tools.deepseek import DeepSeekParser
from headway.gateway.tools.harmony import HARMONY, is_harmony
from headway.gateway.tools.mistral import MistralParser
from headway.gateway.tools.parser import AnswerParser, BareParser, TaggedParser
from headway.gateway.tools.pythonic import PythonicParser
from headway.gateway.tools.tags import (
    CALL_END,
    CALL_START,
    DEEPSEEK_CALL_END,
    DEEPSEEK_CALL_START,
    DEEPSEEK_CALLS_END,
    DEEPSEEK_CALLS_START,
    DEEPSEEK_SEPARATOR,
    FUNCTION_START,
    MISTRAL_ARGUMENTS,
    MISTRAL_CALL,
)
from headway.gateway.tools.tool import Tool, Toolbox


class ToolSyntax(Protocol):
    """How a model writes calls."""

    def parser(self, toolbox: Toolbox) -> AnswerParser:
        """Returns a new parser for one answer."""

    def guide(self, toolbox: Toolbox) -> Guide:
        """The language of answers that are calls of the required tools, and nothing else; InvalidArgumentError where
        there is no such guide.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class FramedSyntax:
    """Calls whose arguments are JSON, in a frame of fixed texts.

    Attributes:
        start, end: what stands around all calls.
        call_start, call_end: what stands around the arguments of one; in the former NAME is the tool's name, and "NAME"
            that name as JSON.
        separator: what stands between two; None where an answer has one call.
        make_parser: reads them.
    """

    start: str = ""
    end: str = ""
    call_start: str
    call_end: str
    separator: str | None
    make_parser: Callable[[Toolbox], AnswerParser]

    def parser(self, toolbox: Toolbox) -> AnswerParser:
        return self.make_parser(toolbox)

    def guide(self, toolbox: Toolbox) -> Guide:
        is_repeated = toolbox.is_parallel and self.separator is not None
        more = f" ({_term(self.separator)} call)*" if is_repeated and self.separator is not None else ""
        rules = [
            f"start: {_term(self.start)} call{more} {_term(self.end)}",
            "call: " + " | ".join(f"call_{i}" for i in range(len(toolbox.required))),
            *self._rules(toolbox.required),
        ]
        return Guide(GuideKind.GRAMMAR, "\n".join(rules))

    def _rules(self, tools: Sequence[Tool]) -> list[str]:
        rules = []
        for i, tool in enumerate(tools):
            head = _named(self.call_start, tool.name)
            rules.append(f"call_{i}: {lark_text(head)} arguments_{i} {_term(self.call_end)}")
            rules.append(f"arguments_{i}: {lark_json(tool.parameters)}")
        return rules


@dataclass(frozen=True, slots=True, kw_only=True)
class LooseSyntax:
    """Calls that no guide describes. Where there must be one, it is written in another syntax.

    Attributes:
        make_parser: reads calls that the model makes by itself.
        forced: the other one.
    """

    make_parser: Callable[[Toolbox], AnswerParser]
    forced: ToolSyntax

    def parser(self, toolbox: Toolbox) -> AnswerParser:
        return self.forced.parser(toolbox) if toolbox.required else self.make_parser(toolbox)

    def guide(self, toolbox: Toolbox) -> Guide:
        return self.forced.guide(toolbox)


TAGGED = FramedSyntax(
    call_start=CALL_START + '\n{"name": "NAME", "arguments": ',
    call_end="}\n" + CALL_END,
    separator="\n",
    make_parser=TaggedParser,
)
BARE = FramedSyntax(call_start='{"name": "NAME", "parameters": ', call_end="}", separator=None, make_parser=BareParser)
MISTRAL = FramedSyntax(
    call_start=f"{MISTRAL_CALL}NAME{MISTRAL_ARGUMENTS}", call_end="", separator="", make_parser=MistralParser
)
MISTRAL_LIST = FramedSyntax(
    start=f"{MISTRAL_CALL} [",
    end="]",
    call_start='{"name": "NAME", "arguments": ',
    call_end="}",
    separator=", ",
    make_parser=MistralParser,
)
DEEPSEEK = FramedSyntax(
    start=DEEPSEEK_CALLS_START,
    end=DEEPSEEK_CALLS_END,
    call_start=f"{DEEPSEEK_CALL_START}NAME{DEEPSEEK_SEPARATOR}",
    call_end=DEEPSEEK_CALL_END,
    separator="",
    make_parser=DeepSeekParser,
)
DEEPSEEK_FENCED = FramedSyntax(
    start=DEEPSEEK_CALLS_START,
    end=DEEPSEEK_CALLS_END,
    call_start=f"{DEEPSEEK_CALL_START}function{DEEPSEEK_SEPARATOR}NAME\n```json\n",
    call_end=f"\n```{DEEPSEEK_CALL_END}",
    separator="\n",
    make_parser=DeepSeekParser,
)
CODER = LooseSyntax(make_parser=CoderParser, forced=TAGGED)
PYTHONIC = LooseSyntax(make_parser=PythonicParser, forced=BARE)


def syntax_of(template: str) -> ToolSyntax | None:
    """The syntax that a chat template teaches its model; None if it is none that is read here.

    Templates show it by example, with quotes that may be escaped.
    """
    return next((syntax for syntax, shows in _SIGNS if "tools" in template and shows(template)), None)


def syntax_named(parser: ToolParser) -> ToolSyntax | None:
    """The syntax that a user names; None for none."""
    return _NAMED[parser]


def _shows(pattern: str) -> Callable[[str], object]:
    return re.compile(pattern, re.DOTALL).search


# What a template shows of each; the first that fits is meant.
_SIGNS: Sequence[tuple[ToolSyntax, Callable[[str], object]]] = (
    (HARMONY, is_harmony),
    (DEEPSEEK_FENCED, _shows(f"{DEEPSEEK_CALL_START}.*```json")),
    (DEEPSEEK, _shows(DEEPSEEK_CALL_START)),
    (MISTRAL, _shows(rf"{re.escape(MISTRAL_CALL)}.*{re.escape(MISTRAL_ARGUMENTS)}")),
    (MISTRAL_LIST, _shows(re.escape(MISTRAL_CALL))),
    (CODER, _shows(f"{CALL_START}.*{FUNCTION_START}")),
    (TAGGED, _shows(rf'{CALL_START}.*\\?"arguments\\?"|\\?"arguments\\?".*{CALL_START}')),
    (PYTHONIC, _shows(r"\[\s*\w*func\w*\s*\(\s*\w*param\w*\s*=")),
    (BARE, _shows(r'\\?"parameters\\?"')),
)


_NAMED: Mapping[ToolParser, ToolSyntax | None] = {
    ToolParser.HERMES: TAGGED,
    ToolParser.LLAMA3_JSON: BARE,
    ToolParser.MISTRAL: MISTRAL,
    ToolParser.DEEPSEEK_V3: DEEPSEEK_FENCED,
    ToolParser.DEEPSEEK_V31: DEEPSEEK,
    ToolParser.QWEN3_CODER: CODER,
    ToolParser.PYTHONIC: PYTHONIC,
    ToolParser.HARMONY: HARMONY,
    ToolParser.NONE: None,
}


def _named(text: str, name: str) -> str:
    return re.sub('"NAME"|NAME', lambda match: json.dumps(name) if match[0][0] == '"' else name, text)


def _term(text: str | None) -> str:
    """A term of a grammar for a text; none for none."""
    return lark_text(text) if text else ""
