"""Bodies of the requests, as pydantic models: types are strict, and ranges are checked further in."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_core import PydanticCustomError

from headway.core.errors import InvalidArgumentError
from headway.core.sampling_defaults import SamplingDefaults
from headway.gateway.openai.constraint import ConstrainedRequest
from headway.gateway.openai.fields import note_unread_parts, read_fields
from headway.gateway.openai.format import AnswerParts
from headway.gateway.openai.ignored import IgnoredFields
from headway.gateway.openai.input_form import Content, Prompts
from headway.gateway.openai.response_items import ITEM_TYPES
from headway.gateway.openai.strict import ModelRequest, Strict
from headway.gateway.openai.tools import ToolCall, ToolRequest
from headway.gateway.options import DEFAULT_COMPLETION_TOKENS, Options

R = TypeVar("R", bound=Strict)
V = TypeVar("V")


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _as_word(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _as_text(value: Any) -> Any:
    """Content of several parts is their texts, line by line, and what the model said as it refused is one; null is no
    text.
    """
    if value is None or isinstance(value, str):
        return value or ""
    if not isinstance(value, list):
        raise PydanticCustomError("content", "should be a string or a list of parts of type 'text'")
    texts = []
    for part in value:
        kind = part.get("type") if isinstance(part, dict) else None
        text = part.get(kind) if kind in ("text", "refusal") else None
        if not isinstance(text, str):
            raise PydanticCustomError("content", 'has a part that is not {"type": "text", "text": "..."}')
        texts.append(text)
    return "\n".join(texts)


def _as_prompts(value: Any) -> Any:
    """A text, texts, token ids, or lists of token ids: always a list of prompts."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list) or not value:
        raise PydanticCustomError("prompt", "should be a text, token ids, or a list of one of these")
    if set(map(type, value)) == {int}:
        return [value]
    for i, item in enumerate(value):
        is_text = isinstance(item, str)
        is_tokens = isinstance(item, list) and all(type(token_id) is int for token_id in item)
        if not is_text and not is_tokens:
            raise PydanticCustomError(
                "prompt", "has an item {index} that is neither text nor a list of token ids", {"index": i}
            )
    return value


class StreamOptions(Strict):
    include_usage: bool = False
    continuous_usage_stats: bool = False
    include_obfuscation: bool = False


class GenerationRequest(ModelRequest, ConstrainedRequest):
    """The fields that completion and chat requests share."""

    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    n: int = 1
    stop: Annotated[list[str], BeforeValidator(_as_list, json_schema_input_type=str | list[str])] = Field(default=[])
    seed: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    min_tokens: int = 0
    ignore_eos: bool = False
    stop_token_ids: list[int] = Field(default_factory=list)
    best_of: int | None = None
    use_beam_search: bool = False
    beam_width: int | None = None
    length_penalty: float = 1.0
    early_stopping: Annotated[str, BeforeValidator(_as_word, json_schema_input_type=str | bool)] = "false"
    prompt_logprobs: int | None = None
    return_token_ids: bool = False
    cache_salt: Annotated[str, Field(min_length=1)] = Field(default="")
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False

    @property
    def parts(self) -> AnswerParts:
        """The parts that the answer is to have."""
        has_usage = self.stream_options.include_usage
        return AnswerParts(
            usage=has_usage,
            continuous_usage=has_usage and self.stream_options.continuous_usage_stats,
            token_ids=self.return_token_ids,
            num_prompt_logprobs=self.prompt_logprobs,
        )

    @property
    def template_fields(self) -> Mapping[str, str]:
        """The fields set by the request that only some chat templates use, by the templates' names for them."""
        return {}

    @property
    def field_names(self) -> Mapping[str, str]:
        """The names by which the request has fields that are checked under another name."""
        is_new = self.max_tokens is None and self.max_completion_tokens is not None
        return {"max_tokens": "max_completion_tokens"} if is_new else {}

    @property
    def output_limit(self) -> int | None:
        """max_tokens by either of its names."""
        old, new = self.max_tokens, self.max_completion_tokens
        if old is not None and new is not None and old != new:
            raise InvalidArgumentError(
                f"max_tokens is {old} and max_completion_tokens is {new}; they mean the same.",
                hint="Set one of them.",
                field="max_tokens",
            )
        return new if old is None else old

    @property
    def _beam_width(self) -> int | None:
        """The width is beam_width, or with use_beam_search best_of or n, as vLLM had it."""
        if self.beam_width is None and self.use_beam_search:
            return self.best_of or self.n
        return self.beam_width

    @property
    def _best_of(self) -> int | None:
        if self.stream and self._beam_width is None and self.best_of is not None and self.best_of > self.n:
            raise InvalidArgumentError(
                f"best_of is {self.best_of} and n is {self.n}: which samples are best is known when all have ended.",
                hint="Leave stream out.",
                field="best_of",
            )
        return self.best_of

    def _options(self, defaults: SamplingDefaults, **more: Any) -> Options:
        if self._beam_width is not None:
            defaults = defaults.of_beam_search
        if self.stream and self.prompt_logprobs is not None:
            raise InvalidArgumentError(
                "prompt_logprobs are not available with stream.", hint="Leave stream out.", field="prompt_logprobs"
            )
        return Options(
            max_tokens=self.output_limit,
            max_tokens_limit=defaults.max_tokens_limit,
            n=self.n,
            stop=tuple(self.stop),
            temperature=_or(self.temperature, defaults.temperature),
            top_p=_or(self.top_p, defaults.top_p),
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            seed=self.seed,
            top_k=_or(self.top_k, defaults.top_k),
            min_p=_or(self.min_p, defaults.min_p),
            repetition_penalty=_or(self.repetition_penalty, defaults.repetition_penalty),
            min_tokens=self.min_tokens,
            ignore_eos=self.ignore_eos,
            stop_token_ids=tuple(self.stop_token_ids),
            best_of=self._best_of,
            beam_width=self._beam_width,
            length_penalty=self.length_penalty,
            early_stopping=self.early_stopping,
            constraints=self.constraints,
            skip_special_tokens=self.skip_special_tokens,
            include_stop_str_in_output=self.include_stop_str_in_output,
            cache_salt=self.cache_salt,
            **more,
        )


class CompletionRequest(GenerationRequest):
    """Body of POST /v1/completions."""

    prompt: Annotated[list[str | list[int]], BeforeValidator(_as_prompts, json_schema_input_type=Prompts)]
    echo: bool = False
    logprobs: int | None = None

    def options(self, defaults: SamplingDefaults) -> Options:
        asked = [self.prompt_logprobs, self.logprobs if self.echo else None]
        return self._options(
            defaults,
            default_max_tokens=DEFAULT_COMPLETION_TOKENS,
            num_logprobs=self.logprobs,
            num_prompt_logprobs=max((count for count in asked if count is not None), default=None),
            prompt_only=self.echo and self.output_limit == 0,
        )


class ChatMessage(Strict):
    """One message of a chat. Fields that answers have besides text are accepted where they are empty, since clients
    send our answers back.
    """

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[str, BeforeValidator(_as_text, json_schema_input_type=Content)] = ""
    name: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    audio: None = None
    function_call: None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    annotations: Annotated[list[None] | None, Field(max_length=0)] = None

    def document(self, *, field: str) -> dict[str, Any]:
        """Returns the message as chat templates read it. 'developer' is the newer name of 'system', which no template
        knows.
        """
        role = "system" if self.role == "developer" else self.role
        message = {"role": role, "content": self.content or self.refusal or ""}
        calls = [call.document(field=f"{field}.tool_calls[{i}]") for i, call in enumerate(self.tool_calls or ())]
        extras = {
            "name": self.name,
            "reasoning_content": self.reasoning_content,
            "tool_calls": calls or None,
            "tool_call_id": self.tool_call_id,
        }
        return message | {key: value for key, value in extras.items() if value is not None}


class ChatRequest(GenerationRequest, ToolRequest):
    """Body of POST /v1/chat/completions."""

    messages: list[ChatMessage]
    logprobs: bool = False
    top_logprobs: int | None = None
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    documents: list[dict[str, Any]] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    reasoning_effort: str | None = None

    @property
    def num_messages(self) -> int:
        return len(self.messages)

    def chat_messages(self) -> list[dict[str, Any]]:
        """Returns the messages as chat templates read them."""
        return [message.document(field=f"messages[{i}]") for i, message in enumerate(self.messages)]

    @property
    def template_variables(self) -> dict[str, Any]:
        """Returns the variables of the template besides messages and tools; fields of their own override
        chat_template_kwargs.
        """
        if self.continue_final_message and self.add_generation_prompt:
            raise InvalidArgumentError(
                "continue_final_message and add_generation_prompt exclude each other.",
                hint="Set add_generation_prompt to false, or leave it out.",
                field="continue_final_message",
            )
        own = {
            "add_generation_prompt": False if self.continue_final_message else self.add_generation_prompt,
            "documents": self.documents,
            "reasoning_effort": self.reasoning_effort,
        }
        return self.chat_template_kwargs | {name: value for name, value in own.items() if value is not None}

    @property
    def template_fields(self) -> Mapping[str, str]:
        return {name: name for name in ("documents", "reasoning_effort") if getattr(self, name) is not None}

    @property
    def field_names(self) -> Mapping[str, str]:
        return {**super().field_names, **({} if self.top_logprobs is None else {"logprobs": "top_logprobs"})}

    def options(self, defaults: SamplingDefaults) -> Options:
        if self.top_logprobs is not None and not self.logprobs:
            raise InvalidArgumentError(
                "top_logprobs is set without logprobs.", hint="Set logprobs to true.", field="top_logprobs"
            )
        return self._options(
            defaults,
            default_max_tokens=defaults.max_tokens,
            num_logprobs=(self.top_logprobs or 0) if self.logprobs else None,
            num_prompt_logprobs=self.prompt_logprobs,
        )


def read_request(kind: type[R], body: Mapping[str, Any], *, ignored: IgnoredFields) -> R:
    """The request that a JSON object describes; InvalidArgumentError names the path of the first fault.

    Args:
        ignored: gets the fields that nobody knows, unless it refuses them.
    """
    fields = read_fields(body, known=kind.model_fields, ignored=ignored)
    try:
        request = kind.model_validate(fields)
    except ValidationError as error:
        raise _fault(error) from None
    note_unread_parts(request, fields, ignored)
    return request


def _or(value: V | None, default: V) -> V:
    return default if value is None else value


def _fault(error: ValidationError) -> InvalidArgumentError:
    fault = error.errors(include_url=False, include_input=False)[0]
    path = ""
    for part in fault["loc"]:
        if part in ITEM_TYPES and path.endswith("]"):
            continue  # of a union's members it is the one that the document names
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    message = "Input should be an object" if fault["type"] == "model_type" else fault["msg"]
    if fault["type"] == "missing":
        return InvalidArgumentError(f"{path} is missing.", hint="Add it to the request.", field=path)
    return InvalidArgumentError(f"{path}: {message[0].lower()}{message[1:]}.", field=path)
