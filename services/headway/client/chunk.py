"""The output that a client receives."""

from dataclasses import dataclass

from headway.core.model import ModelSpec
from headway.core.request import FinishReason, TokenLogprobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens counted for one request, all its sequences together.

    Attributes:
        cached_tokens: prompt tokens whose keys and values came from a prefix cache.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A piece of one sequence, as it was generated.

    Attributes:
        index: which of the request's n sequences.
        text: new text; may be empty while a character or a stop string is incomplete.
        token_ids: new tokens.
        logprobs: one entry per new token, if asked for.
        prompt_logprobs: of prompt tokens 1.., with a sequence's first chunk, if asked for.
        finish_reason: set on a sequence's last chunk.
        usage: set on the request's last chunk.
    """

    request_id: str
    index: int = 0
    text: str = ""
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    finish_reason: FinishReason | None = None
    usage: Usage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A model that can be asked for by its name.

    Attributes:
        max_model_len: longest sequence in tokens, prompt and output together.
        num_replicas: groups that serve it.
    """

    name: str
    max_model_len: int
    num_replicas: int
    spec: ModelSpec | None = None
