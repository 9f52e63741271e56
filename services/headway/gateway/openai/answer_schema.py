"""Answers of the API, as its own documentation describes them. Nothing is made of these: answers are serialised as they
come, and tests hold them against the schemas.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from headway.core.model import Task


class Answer(BaseModel):
    """A part of an answer. It has no fields but these; one with a default may be left out."""

    model_config = ConfigDict(extra="forbid")


class Fault(Answer):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorDocument(Answer):
    """What comes with every status above 399."""

    error: Fault


class CachedTokens(Answer):
    cached_tokens: int


class Usage(Answer):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens


class RankedToken(Answer):
    logprob: float
    rank: int
    decoded_token: str


class _Generated(Answer):
    id: str
    created: int = Field(description="Seconds since 1970.")
    model: str
    system_fingerprint: str
    usage: Usage


class CompletionLogprobs(Answer):
    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(Answer):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: Literal["stop", "length"]
    token_ids: list[int] = Field(default=[], description="With return_token_ids.")
    prompt_token_ids: list[int] = Field(default=[], description="With return_token_ids.")
    prompt_logprobs: list[dict[str, RankedToken] | None] = Field(default=[], description="Where they are asked for.")


class Completion(_Generated):
    """An answer of POST /v1/completions."""

    object: Literal["text_completion"]
    choices: list[CompletionChoice]


class TopLogprob(Answer):
    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(Answer):
    content: list[TokenLogprob]
    refusal: None


class CalledFunction(Answer):
    name: str
    arguments: str = Field(description="A JSON text.")


class ToolCall(Answer):
    id: str
    type: Literal["function"]
    function: CalledFunction


class Message(Answer):
    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning_content: str = ""
    tool_calls: list[ToolCall] = []


class ChatChoice(Answer):
    index: int
    message: Message
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length", "tool_calls"]
    token_ids: list[int] = Field(default=[], description="With return_token_ids.")


class ChatCompletion(_Generated):
    """An answer of POST /v1/chat/completions."""

    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    prompt_token_ids: list[int] = Field(default=[], description="With return_token_ids.")
    prompt_logprobs: list[dict[str, RankedToken] | None] = Field(default=[], description="Where they are asked for.")


class OutputText(Answer):
    type: Literal["output_text"]
    text: str
    annotations: list[None] = Field(max_length=0)
    logprobs: list[TokenLogprob]


class ReasoningText(Answer):
    type: Literal["reasoning_text"]
    text: str


class _Item(Answer):
    id: str
    status: Literal["in_progress", "completed", "incomplete"]


class OutputMessage(_Item):
    type: Literal["message"]
    role: Literal["assistant"]
    content: list[OutputText]


class OutputReasoning(_Item):
    type: Literal["reasoning"]
    summary: list[None] = Field(max_length=0)
    content: list[ReasoningText]


class OutputCall(_Item):
    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str = Field(description="A JSON text.")


class ReasoningTokens(Answer):
    reasoning_tokens: int


class ResponseUsage(Answer):
    input_tokens: int
    input_tokens_details: CachedTokens
    output_tokens: int
    output_tokens_details: ReasoningTokens
    total_tokens: int


class IncompleteDetails(Answer):
    reason: Literal["max_output_tokens"]


class ResponseFault(Answer):
    code: str
    message: str


class ResponseReasoning(Answer):
    effort: str | None
    summary: None


class ResponseText(Answer):
    format: dict[str, Any]


class Response(Answer):
    """An answer of POST /v1/responses."""

    id: str
    object: Literal["response"]
    created_at: int = Field(description="Seconds since 1970.")
    model: str
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    error: ResponseFault | None
    incomplete_details: IncompleteDetails | None
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    output: list[OutputMessage | OutputReasoning | OutputCall]
    parallel_tool_calls: bool
    previous_response_id: None
    reasoning: ResponseReasoning
    store: Literal[False]
    temperature: float
    text: ResponseText
    tool_choice: str | dict[str, str]
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float
    truncation: str
    usage: ResponseUsage | None


class InputUsage(Answer):
    prompt_tokens: int
    total_tokens: int


class Embedding(Answer):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str = Field(description="Numbers, or base64 of 32-bit little-endian floats.")


class Embeddings(Answer):
    """An answer of POST /v1/embeddings."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: InputUsage


class InputClass(Answer):
    index: int
    label: str
    probs: list[float]
    num_classes: int


class Classes(Answer):
    """An answer of POST /v1/classify."""

    id: str
    object: Literal["list"]
    created: int = Field(description="Seconds since 1970.")
    model: str
    data: list[InputClass]
    usage: InputUsage


class RankedText(Answer):
    text: str


class RankedDocument(Answer):
    index: int
    relevance_score: float
    document: RankedText | None = None


class Ranking(Answer):
    """An answer of POST /v1/rerank, the best document first."""

    id: str
    model: str
    results: list[RankedDocument]
    usage: InputUsage


class Score(Answer):
    index: int
    object: Literal["score"]
    score: float


class Scores(Answer):
    """An answer of POST /v1/score."""

    id: str
    object: Literal["list"]
    created: int = Field(description="Seconds since 1970.")
    model: str
    data: list[Score]
    usage: InputUsage


class Tokens(Answer):
    """An answer of POST /tokenize."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = Field(description="As the vocabulary has them, with return_token_strs.")


class Detokenized(Answer):
    """An answer of POST /detokenize."""

    prompt: str


class Model(Answer):
    id: str
    object: Literal["model"]
    created: int = Field(description="Seconds since 1970.")
    owned_by: Literal["headway"]
    max_model_len: int
    task: Task
    emulated: Literal[True] = Field(default=True, description="Only where no model computes.")


class Models(Answer):
    """Every model that the caller may ask for, adapters too."""

    object: Literal["list"]
    data: list[Model]


class Alive(Answer):
    status: Literal["ok"]


class Readiness(Answer):
    ready: bool
    waiting_for: list[str]
    faults: list[str] = []


class ScrapeTarget(Answer):
    """An entry of Prometheus's HTTP service discovery."""

    targets: list[str]
    labels: dict[str, str]


class Version(Answer):
    version: str
