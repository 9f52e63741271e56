"""The body of POST /v1/responses."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from headway.core.errors import InvalidArgumentError
from headway.core.request import Guide, GuideKind
from headway.core.sampling_defaults import SamplingDefaults
from headway.gateway.openai.constraint import GuidingPart
from headway.gateway.openai.input_form import ChoiceWord
from headway.gateway.openai.response_items import Item, as_items, messages_of
from headway.gateway.openai.schema import GenerationRequest
from headway.gateway.openai.strict import Strict
from headway.gateway.openai.tools import Name, make_toolbox
from headway.gateway.options import Options
from headway.gateway.tools.tool import Tool, Toolbox

LOGPROBS = "message.output_text.logprobs"

# What the pipeline that chats share calls by another name.
_FIELDS = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "logprobs": "top_logprobs",
    "reasoning_effort": "reasoning.effort",
}


def _never(why: str) -> BeforeValidator:
    def refuse(value: Any) -> Any:
        if value is None or value is False:
            return None
        raise PydanticCustomError("unsupported", "is not supported: {why}", {"why": why})

    return BeforeValidator(refuse, json_schema_input_type=Literal[False] | None)


Stored = Annotated[None, _never("answers are not kept. Send the whole conversation as input")]
Absent = Annotated[None, _never("leave it out")]


class Function(Strict):
    """A function that the model may call."""

    type: Literal["function"]
    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    def tool(self, *, field: str) -> Tool:
        document = self.model_dump(exclude_unset=True, exclude={"type"}, exclude_none=True)
        return Tool(
            name=self.name,
            parameters={"type": "object", **(self.parameters or {})},
            document={"type": "function", "function": document},
            field=f"{field}.parameters",
        )


def _as_choice(value: Any) -> Any:
    return {"type": value} if isinstance(value, str) else value


class FunctionChoice(Strict):
    """Whether there is to be a call, and of what."""

    type: Literal["none", "auto", "required", "function"]
    name: Name | None = None


Choice = Annotated[FunctionChoice, BeforeValidator(_as_choice, json_schema_input_type=ChoiceWord | FunctionChoice)]


class TextFormat(Strict):
    """The form of the answer's text; a schema is followed to the letter whether `strict` or not."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None

    @property
    def guides(self) -> dict[str, Guide]:
        """Returns the guide that the format asks for, by its field's name; at most one."""
        if self.type == "text":
            return {}
        if self.type == "json_object":
            return {"text.format": Guide(GuideKind.JSON_OBJECT)}
        if self.schema_ is None:
            raise InvalidArgumentError(
                "text.format asks for a JSON schema and has none.",
                hint='Set text.format to {"type": "json_schema", "name": "...", "schema": {...}}.',
                field="text.format.schema",
            )
        return {"text.format.schema": Guide(GuideKind.JSON_SCHEMA, json.dumps(self.schema_))}


class TextConfig(Strict):
    format: TextFormat | None = None
    verbosity: Literal["medium"] | None = None


class Reasoning(Strict):
    """How much the model is to think. Reasoning is told as it is, whether a summary was asked for or not."""

    effort: str | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None


class ResponseRequest(GenerationRequest):
    """Body of POST /v1/responses. Besides the OpenAI API's fields it has those that sample and guide a chat."""

    input: Annotated[list[Item], BeforeValidator(as_items, json_schema_input_type=str | list[Item])]
    instructions: str | None = None
    max_output_tokens: int | None = None
    tools: list[Function] = Field(default=[])
    tool_choice: Choice = FunctionChoice(type="auto")
    parallel_tool_calls: bool = True
    text: TextConfig = TextConfig()
    reasoning: Reasoning = Reasoning()
    include: list[Literal["message.output_text.logprobs", "reasoning.encrypted_content"]] = Field(default=[])
    top_logprobs: int | None = None
    truncation: Literal["disabled"] = "disabled"
    metadata: dict[str, str] = Field(default={})
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    max_tool_calls: int | None = None

    store: Stored = None
    previous_response_id: Stored = None
    conversation: Stored = None
    background: Stored = None
    prompt: Absent = None
    context_management: Absent = None
    moderation: Absent = None
    n: Literal[1] = 1
    best_of: Absent = None
    beam_width: Absent = None
    use_beam_search: Literal[False] = False
    prompt_logprobs: Absent = None
    return_token_ids: Literal[False] = False
    response_format: Annotated[None, _never("set text.format instead")] = None
    max_tokens: Annotated[None, _never("set max_output_tokens instead")] = None
    max_completion_tokens: Annotated[None, _never("set max_output_tokens instead")] = None

    @property
    def continue_final_message(self) -> bool:
        return False

    @property
    def num_messages(self) -> int:
        return len(self.input)

    def chat_messages(self) -> list[dict[str, Any]]:
        """Returns the input as chat templates read it."""
        return messages_of(self.input, instructions=self.instructions)

    @property
    def toolbox(self) -> Toolbox | None:
        """Returns the tools that the model may call, or None where it is to answer in words."""
        return make_toolbox(
            [tool.tool(field=f"tools[{i}]") for i, tool in enumerate(self.tools)],
            choice=self.tool_choice.type,
            name=self.tool_choice.name,
            is_parallel=self.parallel_tool_calls,
            name_field="tool_choice.name",
        )

    @property
    def template_variables(self) -> dict[str, Any]:
        """Returns the variables of the template besides messages and tools."""
        effort = self.reasoning.effort
        return self.chat_template_kwargs | ({} if effort is None else {"reasoning_effort": effort})

    @property
    def template_fields(self) -> Mapping[str, str]:
        return {} if self.reasoning.effort is None else {"reasoning_effort": "reasoning.effort"}

    @property
    def field_names(self) -> Mapping[str, str]:
        return _FIELDS

    @property
    def output_limit(self) -> int | None:
        return self.max_output_tokens

    @property
    def has_logprobs(self) -> bool:
        """Whether the answer has log probabilities."""
        return LOGPROBS in self.include or self.top_logprobs is not None

    def options(self, defaults: SamplingDefaults) -> Options:
        return self._options(
            defaults,
            default_max_tokens=defaults.max_tokens,
            num_logprobs=(self.top_logprobs or 0) if self.has_logprobs else None,
        )

    @property
    def _guiding_parts(self) -> Sequence[GuidingPart | None]:
        return (self.text.format, self.structured_outputs)
