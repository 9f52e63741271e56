"""Calls as DeepSeek's models write them: V3 and R1 with a fence around the arguments, V3.1 without.

<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME
```json
{...}
```<｜tool▁call▁end｜><｜tool▁calls▁end｜>

<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{...}<｜tool▁call▁end｜><｜tool▁calls▁end｜>
"""  # noqa: RUF002

import re
from typing import ClassVar

from headway.gateway.tools.call import Scanner
from headway.gateway.tools.headed import HeadedScanner
from headway.gateway.tools.parser import TaggedParser
from headway.gateway.tools.tags import (
    DEEPSEEK_CALL_END,
    DEEPSEEK_CALL_START,
    DEEPSEEK_CALLS_END,
    DEEPSEEK_CALLS_START,
    DEEPSEEK_SEPARATOR,
)
from headway.gateway.tools.tool import Toolbox

_KIND = "function" + DEEPSEEK_SEPARATOR
_FENCE = "```"
_HEADER = re.compile(rf"\s*(?:{_KIND}(\S+)\s*{_FENCE}json\s*|(\S+?){DEEPSEEK_SEPARATOR}\s*)")


class DeepSeekParser(TaggedParser):
    """Words, and calls between tags."""

    STARTS: ClassVar[tuple[str, ...]] = (DEEPSEEK_CALL_START,)
    LEAD: ClassVar[str] = DEEPSEEK_CALLS_START
    ENDS: ClassVar[tuple[str, ...]] = (_FENCE + DEEPSEEK_CALL_END, DEEPSEEK_CALL_END, DEEPSEEK_CALLS_END)

    def __init__(self, toolbox: Toolbox) -> None:
        super().__init__(toolbox)
        self._openings = [opening for name in toolbox.names for opening in (_KIND + name, name + DEEPSEEK_SEPARATOR)]

    def _make_scanner(self, tag: str) -> Scanner:
        del tag
        return HeadedScanner(self.num_calls, header=_HEADER, openings=self._openings, names=self._toolbox.names)
