"""Tools in a request: what the model may call, what it called, and what came of it."""

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from headway.core.errors import InvalidArgumentError
from headway.gateway.openai.input_form import ChoiceWord
from headway.gateway.openai.strict import Strict
from headway.gateway.tools.tool import Tool, Toolbox

Name = Annotated[str, Field(min_length=1, max_length=128)]


class Function(Strict):
    """A function that can be called; its arguments are always guided by the schema where a call is asked for."""

    name: Name
    description: str | None = None
    parameters: dict[str, Any] = Field(default={})
    strict: bool | None = None


class FunctionTool(Strict):
    """The one kind of tool that there is."""

    type: Literal["function"]
    function: Function


class NamedFunction(Strict):
    """A function that is to be called."""

    name: Name


def _as_choice(value: Any) -> Any:
    return {"type": value} if isinstance(value, str) else value


class ToolChoice(Strict):
    """Whether there is to be a call, and of what."""

    type: Literal["none", "auto", "required", "function"]
    function: NamedFunction | None = None


Choice = Annotated[ToolChoice, BeforeValidator(_as_choice, json_schema_input_type=ChoiceWord | ToolChoice)]


class CalledFunction(Strict):
    """A call as the model made it; the arguments are a JSON text."""

    name: Name
    arguments: str = "{}"


class ToolCall(Strict):
    """One call of an assistant's message that comes back to us."""

    id: str | None = None
    type: Literal["function"] = "function"
    index: int | None = None
    function: CalledFunction

    def document(self, *, field: str) -> dict[str, Any]:
        """Returns the call as chat templates read it, with the arguments as an object."""
        arguments = read_arguments(self.function.arguments, field=f"{field}.function.arguments")
        return call_document(self.function.name, arguments, call_id=self.id)


class ToolRequest(Strict):
    """The part of a chat request that concerns tools."""

    tools: list[FunctionTool] = Field(default=[])
    tool_choice: Choice = ToolChoice(type="auto")
    parallel_tool_calls: bool = True

    @property
    def toolbox(self) -> Toolbox | None:
        """Returns the tools that the model may call, or None where it is to answer in words."""
        named = self.tool_choice.function
        return make_toolbox(
            [_tool(tool, field=f"tools[{i}].function") for i, tool in enumerate(self.tools)],
            choice=self.tool_choice.type,
            name=None if named is None else named.name,
            is_parallel=self.parallel_tool_calls,
            name_field="tool_choice.function.name",
        )


def make_toolbox(
    tools: Sequence[Tool], *, choice: str, name: str | None, is_parallel: bool, name_field: str
) -> Toolbox | None:
    """The tools that the model may call, or None where it is to answer in words.

    Args:
        choice: "none", "auto", "required", or "function" where the one of that name is to be called.
        name_field: the field that has the name.
    """
    if not tools and choice in {"required", "function"}:
        raise InvalidArgumentError(
            "tool_choice asks for a call, and there are no tools.", hint="Set tools.", field="tool_choice"
        )
    if not tools or choice == "none":
        return None
    required = tuple(tool for tool in tools if choice == "required" or (choice == "function" and tool.name == name))
    if choice == "function" and not required:
        raise InvalidArgumentError(
            "tool_choice names a function that is not among the tools.",
            hint=f"Name one of: {', '.join(tool.name for tool in tools)}.",
            field=name_field,
        )
    return Toolbox(tools=tuple(tools), required=required, is_parallel=is_parallel and choice != "function")


def read_arguments(text: str, *, field: str) -> Any:
    """The arguments of a call that comes back to us; InvalidArgumentError where they are no JSON."""
    try:
        return json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{field} is not valid JSON, or nested too deeply: {error}.", field=field) from None


def call_document(name: str, arguments: Any, *, call_id: str | None) -> dict[str, Any]:
    """A call as chat templates read it."""
    document = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return document | ({} if call_id is None else {"id": call_id})


def _tool(tool: FunctionTool, *, field: str) -> Tool:
    return Tool(
        name=tool.function.name,
        parameters={"type": "object", **tool.function.parameters},
        document=tool.model_dump(exclude_unset=True),
        field=f"{field}.parameters",
    )
