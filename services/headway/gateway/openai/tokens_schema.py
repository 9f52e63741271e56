"""Bodies of the requests that turn text into tokens and back."""

from typing import Any

from pydantic import Field

from headway.core.errors import InvalidArgumentError
from headway.gateway.openai.schema import ChatMessage
from headway.gateway.openai.strict import ModelRequest
from headway.gateway.openai.tools import FunctionTool


class TokenizeRequest(ModelRequest):
    """The body of POST /tokenize: a prompt, or the messages of a chat."""

    prompt: str | None = None
    add_special_tokens: bool = True
    messages: list[ChatMessage] | None = None
    tools: list[FunctionTool] = Field(default=[])
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template_kwargs: dict[str, Any] = Field(default={})
    return_token_strs: bool = False

    def check(self) -> None:
        """InvalidArgumentError unless there is either a prompt or messages, of which the last is begun or continued."""
        if (self.prompt is None) == (self.messages is None):
            raise InvalidArgumentError(
                "The request has neither prompt nor messages, or both.", hint="Send one of them.", field="prompt"
            )
        if self.continue_final_message and self.add_generation_prompt:
            raise InvalidArgumentError(
                "continue_final_message and add_generation_prompt exclude each other.",
                hint="Set add_generation_prompt to false.",
                field="continue_final_message",
            )


class DetokenizeRequest(ModelRequest):
    """The body of POST /detokenize."""

    tokens: list[int]
