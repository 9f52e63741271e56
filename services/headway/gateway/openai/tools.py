"""Tools in a request: what the model may call, what it called, and what came of it."""

import json
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from headway.core.errors import InvalidArgumentError
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
        try:
            arguments = json.loads(self.function.arguments or "{}")
        except (ValueError, RecursionError) as error:
            raise InvalidArgumentError(
                f"{field}.function.arguments is not valid JSON, or nested too deeply: {error}.",
                field=f"{field}.function.arguments",
            ) from None
        function = {"name": self.function.name, "arguments": arguments}
        return {"type": self.type, "function": function} | ({} if self.id is None else {"id": self.id})


class ToolRequest(Strict):
    """The part of a chat request that concerns tools."""

    tools: list[FunctionTool] = Field(default=[])
    tool_choice: Annotated[ToolChoice, BeforeValidator(_as_choice)] = ToolChoice(type="auto")
    parallel_tool_calls: bool = True

    @property
    def toolbox(self) -> Toolbox | None:
        """Returns the tools that the model may call, or None where it is to answer in words."""
        tools = tuple(_tool(tool, field=f"tools[{i}].function") for i, tool in enumerate(self.tools))
        kind, named = self.tool_choice.type, self.tool_choice.function
        if not tools and kind in {"required", "function"}:
            raise InvalidArgumentError(
                "tool_choice asks for a call, and there are no tools.", hint="Set tools.", field="tool_choice"
            )
        if not tools or kind == "none":
            return None
        required = tools if kind == "required" else ()
        if kind == "function":
            required = tuple(tool for tool in tools if named is not None and tool.name == named.name)
            if not required:
                raise InvalidArgumentError(
                    "tool_choice names a function that is not among the tools.",
                    hint=f"Name one of: {', '.join(tool.name for tool in tools)}.",
                    field="tool_choice.function.name",
                )
        is_parallel = self.parallel_tool_calls and kind != "function"
        return Toolbox(tools=tools, required=required, is_parallel=is_parallel)


def _tool(tool: FunctionTool, *, field: str) -> Tool:
    return Tool(
        name=tool.function.name,
        parameters={"type": "object", **tool.function.parameters},
        document=tool.model_dump(exclude_unset=True),
        field=f"{field}.parameters",
    )
