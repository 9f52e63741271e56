"""Calls as Qwen3-Coder writes them: a tag for each argument, whose type is known from the tool's schema.

<tool_call>
<function=NAME>
<parameter=KEY>
VALUE
</parameter>
</function>
</tool_call>
"""

import re
from collections.abc import Callable
from typing import Any, ClassVar

from headway.gateway.text.stop import num_overlapping
from headway.gateway.tools.call import CallDelta, Scanner, json_text
from headway.gateway.tools.parser import TaggedParser
from headway.gateway.tools.tags import (
    CALL_END,
    CALL_START,
    FUNCTION_END,
    FUNCTION_START,
    PARAMETER_END,
    PARAMETER_START,
)
from headway.gateway.tools.tool import Toolbox
from headway.gateway.tools.typed import is_text, typed

_VALUE_ENDS = (PARAMETER_END, PARAMETER_START, FUNCTION_END)
_VALUE_END = re.compile("|".join(map(re.escape, _VALUE_ENDS)))
_PARAMETER_OR_END = re.compile("|".join(map(re.escape, (PARAMETER_START, FUNCTION_END, CALL_END))))


class FunctionScanner:
    """Reads one function with its parameters, each of which becomes a member of the arguments. Texts go out as they
    come, other values when they are whole; words between parameters are words behind the call.

    Args:
        opening: what stands before the function's name; empty where it has been read.
    """

    def __init__(self, index: int, *, opening: str, toolbox: Toolbox) -> None:
        self.num_calls = 0
        self.is_complete = False
        self._index = index
        self._opening = opening
        self._tools = {tool.name: tool for tool in toolbox.tools}
        self._words = ""
        self._text = ""  # that has not been read
        self._read: Callable[[], list[CallDelta] | None] = self._read_header
        self._properties: Any = {}
        self._schema: Any = None  # of the value that is being read
        self._has_members = False
        self._is_fresh = False  # nothing has been read of the value

    @property
    def words(self) -> str:
        return self._words if self.num_calls or self.is_complete else self._text

    @property
    def rest(self) -> str:
        return self._text if self.is_complete else ""

    def push(self, text: str) -> list[CallDelta]:
        self._text += text
        deltas: list[CallDelta] = []
        while not self.is_complete and (more := self._read()) is not None:
            deltas += more
        return deltas

    # Each of these reads one part, up to where the next begins; None where there is not enough text for that.

    def _read_header(self) -> list[CallDelta] | None:
        start = self._text.lstrip() if self._opening else self._text
        name, mark, rest = start.removeprefix(self._opening).partition(">")
        is_opened = start.startswith(self._opening)
        if is_opened and mark and name in self._tools:
            self.num_calls, self._text, self._read = 1, rest, self._read_body
            self._properties = self._tools[name].parameters.get("properties")
            return [CallDelta(self._index, name)]
        may_be = any(known.startswith(name) for known in self._tools) if is_opened else self._opening.startswith(start)
        self.is_complete = bool(mark and is_opened) or not may_be
        return None

    def _read_body(self) -> list[CallDelta] | None:
        match = _PARAMETER_OR_END.search(self._text)
        if match is None:
            return None
        self._words += self._text[: match.start()].strip()
        self._text = self._text[match.start() if match[0] == CALL_END else match.end() :]
        if match[0] == PARAMETER_START:
            self._read = self._read_key
            return []
        self.is_complete = True
        return self._arguments("}" if self._has_members else "{}")

    def _read_key(self) -> list[CallDelta] | None:
        key, mark, rest = self._text.partition(">")
        if not mark:
            return None
        self._schema = self._properties.get(key) if isinstance(self._properties, dict) else None
        self._text, self._is_fresh = rest, True
        head = f"{', ' if self._has_members else '{'}{json_text(key)}: "
        self._has_members = True
        if is_text(self._schema):
            self._read = self._read_text
            return self._arguments(head + '"')
        self._read = self._read_value
        return self._arguments(head)

    def _read_text(self) -> list[CallDelta] | None:
        if not self._text:
            return None
        if self._is_fresh:
            self._text, self._is_fresh = self._text.removeprefix("\n"), False
        match = _VALUE_END.search(self._text)
        if match is not None:
            text = self._text[: match.start()].removesuffix("\n")
            self._leave_value(match)
            return self._arguments(json_text(text)[1:])
        num_held = max(num_overlapping(self._text, tag) for tag in _VALUE_ENDS)
        text = self._text[: len(self._text) - num_held].removesuffix("\n")
        if not text:
            return None
        self._text = self._text[len(text) :]
        return self._arguments(json_text(text)[1:-1])

    def _read_value(self) -> list[CallDelta] | None:
        match = _VALUE_END.search(self._text)
        if match is None:
            return None
        value = typed(self._text[: match.start()].strip(), self._schema)
        self._leave_value(match)
        return self._arguments(json_text(value))

    def _leave_value(self, match: re.Match[str]) -> None:
        """A value may also end where its own end is missing."""
        self._text = self._text[match.end() if match[0] == PARAMETER_END else match.start() :]
        self._read = self._read_body

    def _arguments(self, text: str) -> list[CallDelta]:
        return [CallDelta(self._index, arguments=text)]


class CoderParser(TaggedParser):
    """Words, and calls between tags; the outer tag is missing at times."""

    STARTS: ClassVar[tuple[str, ...]] = (CALL_START, FUNCTION_START)

    def _make_scanner(self, tag: str) -> Scanner:
        opening = FUNCTION_START if tag == CALL_START else ""
        return FunctionScanner(self.num_calls, opening=opening, toolbox=self._toolbox)
