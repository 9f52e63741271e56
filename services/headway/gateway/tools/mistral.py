"""Calls as Mistral's models write them, each generation otherwise.

[TOOL_CALLS] [{"name": "NAME", "arguments": {...}}, ...]
[TOOL_CALLS]NAME[CALL_ID]ID[ARGS]{...}
[TOOL_CALLS]NAME[ARGS]{...}[TOOL_CALLS]NAME[ARGS]{...}
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from headway.gateway.tools.call import CallDelta, CallScanner, Scanner
from headway.gateway.tools.headed import HeadedScanner
from headway.gateway.tools.listed import ListScanner
from headway.gateway.tools.parser import TaggedParser
from headway.gateway.tools.tags import MISTRAL_ARGUMENTS, MISTRAL_CALL, MISTRAL_ID
from headway.gateway.tools.tool import Toolbox

_HEADER = re.compile(rf"\s*([^\s\[]+)\s*(?:{re.escape(MISTRAL_ID)}\s*\w+\s*)?(?:{re.escape(MISTRAL_ARGUMENTS)}\s*)?")
_ID = re.compile(r"[a-zA-Z0-9]{9}")


class MistralScanner:
    """Reads what stands behind one tag; its first character tells of which generation that is."""

    def __init__(self, index: int, *, toolbox: Toolbox) -> None:
        self._index = index
        self._toolbox = toolbox
        self._space = ""
        self._scanner: Scanner | None = None

    @property
    def num_calls(self) -> int:
        return self._scanner.num_calls if self._scanner is not None else 0

    @property
    def is_complete(self) -> bool:
        return self._scanner is not None and self._scanner.is_complete

    @property
    def words(self) -> str:
        return self._scanner.words if self._scanner is not None else self._space

    @property
    def rest(self) -> str:
        return self._scanner.rest if self._scanner is not None else ""

    def push(self, text: str) -> list[CallDelta]:
        if self._scanner is None:
            text = self._space + text
            start = text.lstrip()
            if not start:
                self._space = text
                return []
            self._scanner = self._choose(start[0])
        return self._scanner.push(text)

    def _choose(self, char: str) -> Scanner:
        names = self._toolbox.names
        if char == "[":
            return ListScanner(
                self._index,
                make_scanner=lambda index: CallScanner(index, names=names),
                is_parallel=self._toolbox.is_parallel,
            )
        if char == "{":
            return CallScanner(self._index, names=names)
        return HeadedScanner(self._index, header=_HEADER, openings=names, names=names)


class MistralParser(TaggedParser):
    """Words, and calls behind tags."""

    STARTS: ClassVar[tuple[str, ...]] = (MISTRAL_CALL,)
    ENDS: ClassVar[tuple[str, ...]] = ()

    def _make_scanner(self, tag: str) -> Scanner:
        del tag
        return MistralScanner(self.num_calls, toolbox=self._toolbox)


def mistral_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages with ids of calls that the templates take: nine letters and digits."""
    return [_with_short_ids(dict(message)) for message in messages]


def _with_short_ids(message: dict[str, Any]) -> dict[str, Any]:
    if "tool_call_id" in message:
        message["tool_call_id"] = _short_id(message["tool_call_id"])
    if message.get("tool_calls"):
        message["tool_calls"] = [
            call | {"id": _short_id(call["id"])} if "id" in call else call for call in message["tool_calls"]
        ]
    return message


def _short_id(call_id: str) -> str:
    if _ID.fullmatch(call_id):
        return call_id
    return hashlib.sha256(call_id.encode(errors="replace")).hexdigest()[:9]
