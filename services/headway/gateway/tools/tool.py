"""Tools that a request offers its model."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headway.core.request import Guide, GuideKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool that the model may call.

    Attributes:
        parameters: the JSON schema of its arguments.
        document: all that the client said of it, as chat templates read it.
        field: its name in the client's request.
    """

    name: str
    parameters: Mapping[str, Any]
    document: Mapping[str, Any]
    field: str = "tools"

    @property
    def guide(self) -> Guide:
        """The language of its arguments."""
        return Guide(GuideKind.JSON_SCHEMA, json.dumps(self.parameters))


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolbox:
    """The tools of a request, and how the model may use them.

    Attributes:
        tools: the tools that the model may call, one at least.
        required: tools of which the answer must call one; empty where the model may also answer in words.
        is_parallel: whether an answer may have several calls.
    """

    tools: tuple[Tool, ...]
    required: tuple[Tool, ...] = ()
    is_parallel: bool = True
    names: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", frozenset(tool.name for tool in self.tools))
