"""The input of a response: what was said, called and thought, item by item."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from headway.gateway.openai.input_form import ItemTextPart, RefusalPart
from headway.gateway.openai.strict import Strict
from headway.gateway.openai.tools import Name, call_document, read_arguments

Message: TypeAlias = dict[str, Any]

_TEXTS = {"text": "text", "input_text": "text", "output_text": "text", "reasoning_text": "text", "refusal": "refusal"}


def _as_text(value: Any) -> Any:
    """Content of several parts is their texts, line by line."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise PydanticCustomError("content", "should be a text or a list of parts")
    return "\n".join([_text_of(part) for part in value])


def _text_of(part: Any) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    text = part.get(_TEXTS[kind]) if isinstance(kind, str) and kind in _TEXTS else None
    if not isinstance(text, str):
        raise PydanticCustomError("content", "has a part that is no text, as input_text and output_text are")
    return text


Text = Annotated[str, BeforeValidator(_as_text, json_schema_input_type=str | list[ItemTextPart | RefusalPart])]
Status = Literal["in_progress", "completed", "incomplete"]


class MessageItem(Strict):
    """A message of either side."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: Text
    id: str | None = None
    status: Status | None = None
    phase: str | None = None


class CallItem(Strict):
    """A call as the model made it; the arguments are a JSON text."""

    type: Literal["function_call"]
    call_id: str
    name: Name
    arguments: str = "{}"
    id: str | None = None
    status: Status | None = None


class CallOutputItem(Strict):
    """What came of a call."""

    type: Literal["function_call_output"]
    call_id: str
    output: Text
    id: str | None = None
    status: Status | None = None


class ReasoningItem(Strict):
    """What the model thought before it went on; a summary of it is not told to the model."""

    type: Literal["reasoning"]
    content: Text = ""
    summary: list[dict[str, Any]] = Field(default=[])
    id: str | None = None
    encrypted_content: str | None = None
    status: Status | None = None


Item: TypeAlias = Annotated[MessageItem | CallItem | CallOutputItem | ReasoningItem, Field(discriminator="type")]
ITEM_TYPES = frozenset({"message", "function_call", "function_call_output", "reasoning"})


def as_items(value: Any) -> Any:
    """A text is what the user says; an item without a type is a message."""
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": value}]
    if not isinstance(value, list):
        raise PydanticCustomError("input", "should be a text or a list of items")
    return [{"type": "message", **item} if isinstance(item, dict) else item for item in value]


def messages_of(items: Sequence[Item], *, instructions: str | None) -> list[Message]:
    """The messages as chat templates read them.

    Reasoning, words and calls that follow each other are one message of the assistant, and texts of the system at the
    front one message, too.
    """
    messages = [] if instructions is None else [{"role": "system", "content": instructions}]
    for i, item in enumerate(items):
        match item:
            case MessageItem(role="assistant"):
                _message_for(messages, without=("content", "tool_calls"))["content"] = item.content
            case MessageItem(role="system" | "developer"):
                _add_system(messages, item.content)
            case MessageItem():
                messages.append({"role": item.role, "content": item.content})
            case CallItem():
                arguments = read_arguments(item.arguments, field=f"input[{i}].arguments")
                message = _message_for(messages, without=())
                message.setdefault("tool_calls", []).append(call_document(item.name, arguments, call_id=item.call_id))
            case CallOutputItem():
                messages.append({"role": "tool", "content": item.output, "tool_call_id": item.call_id})
            case ReasoningItem():
                _message_for(messages, without=("content", "tool_calls"))["reasoning_content"] = item.content
    return messages


def _message_for(messages: list[Message], *, without: Sequence[str]) -> Message:
    """The assistant's message that an item belongs to: the last one, unless it has what comes behind the item."""
    last = messages[-1] if messages else {"role": ""}
    if last["role"] != "assistant" or any(last.get(name) for name in without):
        last = {"role": "assistant", "content": ""}
        messages.append(last)
    return last


def _add_system(messages: list[Message], content: str) -> None:
    if len(messages) == 1 and messages[0]["role"] == "system":
        messages[0]["content"] += f"\n\n{content}"
    else:
        messages.append({"role": "system", "content": content})
