"""The syntax in which a model writes tool calls."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from headway.core.grammar import lark_json, lark_text
from headway.core.request import Guide, GuideKind
from headway.gateway.tools.harmony import HARMONY, HarmonySyntax, is_harmony
from headway.gateway.tools.parser import CALL_END, CALL_START, BareParser, TaggedParser, ToolParser
from headway.gateway.tools.tool import Tool, Toolbox


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonSyntax:
    """One way to write calls that are JSON objects.

    Attributes:
        start, end: what stands around a call.
        separator: what stands between two; None where an answer has one call.
        arguments: the name that the call's object gives to its arguments.
        parser: reads it.
    """

    start: str
    end: str
    separator: str | None
    arguments: str
    parser: type[ToolParser]

    def guide(self, toolbox: Toolbox) -> Guide:
        """The language of answers that are calls of the required tools, and nothing else."""
        is_repeated = toolbox.is_parallel and self.separator is not None
        more = f" ({lark_text(self.separator)} call)*" if is_repeated and self.separator else ""
        rules = [
            f"start: call{more}",
            "call: " + " | ".join(f"call_{i}" for i in range(len(toolbox.required))),
            *self._rules(toolbox.required),
        ]
        return Guide(GuideKind.GRAMMAR, "\n".join(rules))

    def _rules(self, tools: Sequence[Tool]) -> list[str]:
        rules = []
        for i, tool in enumerate(tools):
            head = f'{self.start}{{"name": {json.dumps(tool.name)}, "{self.arguments}": '
            rules.append(f"call_{i}: {lark_text(head)} arguments_{i} {lark_text('}' + self.end)}")
            rules.append(f"arguments_{i}: {lark_json(tool.parameters)}")
        return rules


TAGGED = JsonSyntax(
    start=CALL_START + "\n", end="\n" + CALL_END, separator="\n", arguments="arguments", parser=TaggedParser
)
BARE = JsonSyntax(start="", end="", separator=None, arguments="parameters", parser=BareParser)


ToolSyntax: TypeAlias = JsonSyntax | HarmonySyntax


def syntax_of(template: str) -> ToolSyntax | None:
    """The syntax that a chat template teaches its model; None if it is none that is read here.

    Templates show it by example, with quotes that may be escaped.
    """
    if "tools" not in template:
        return None
    if is_harmony(template):
        return HARMONY
    if CALL_START in template and re.search(r'\\?"arguments\\?"', template):
        return TAGGED
    if re.search(r'\\?"parameters\\?"', template):
        return BARE
    return None
