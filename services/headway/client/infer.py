"""Requests to models that do not generate, and their answers."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias, TypedDict, cast

from headway.client.chunk import Usage
from headway.core.errors import InvalidArgumentError
from headway.core.infer import InferInput, TextInput
from headway.rpc.convert import from_pb
from headway.rpc.convert.infer import input_to_pb
from headway.v1 import common_pb2, inference_pb2

Input: TypeAlias = str | tuple[str, str] | Sequence[int]
"""A text, a pair of texts that are judged together, or token ids with the special ones among them."""


class InferOptions(TypedDict, total=False):
    """Options of `embed`, `classify`, `score` and `rerank`.

    Keys:
        truncate_prompt_tokens: keeps so many tokens of each input, from its start; -1 as many as the model takes. What
            is too long is refused when it is left out.
        slo_ttft_s: objective in seconds, from arrival to the answer.
        slo_ms: the same in milliseconds.
        priority: the lowest goes first, on a server where requests wait by priority.
        request_id: appears in every log line; made up when left out.
        timeout_s: seconds for the answer; the client's when left out.
    """

    truncate_prompt_tokens: int
    slo_ttft_s: float
    slo_ms: float
    priority: int
    request_id: str
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Embeddings:
    """The vectors of a request, one for each input, in order."""

    vectors: tuple[tuple[float, ...], ...]
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Classification:
    """The best label of one input, and the score of each label."""

    label: str
    scores: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The relevance of a document to the query; `index` is the document's place in the request."""

    index: int
    document: str
    score: float


def infer_to_pb(
    inputs: Sequence[Input], *, model: str | None, options: InferOptions, dimensions: int | None = None
) -> inference_pb2.InferRequest:
    """Converts a request; `timeout_s` is the call's and not part of it.

    Raises:
        TypeError: an option that does not exist.
        InvalidArgumentError: an input or an option of the wrong type.
    """
    with _checking(options):
        return inference_pb2.InferRequest(
            model=model or "",
            inputs=[input_to_pb(_input(value)) for value in inputs],
            truncate_prompt_tokens=options.get("truncate_prompt_tokens"),
            dimensions=dimensions,
            slo=_slo_to_pb(options),
            priority=options.get("priority", 0),
            request_id=options.get("request_id", ""),
        )


def score_to_pb(
    text_1: str | Sequence[str], text_2: str | Sequence[str], *, model: str | None, options: InferOptions
) -> inference_pb2.ScoreRequest:
    """Converts a request; `timeout_s` is the call's and not part of it. Raises what `infer_to_pb` does."""
    with _checking(options):
        return inference_pb2.ScoreRequest(
            model=model or "",
            text_1=[text_1] if isinstance(text_1, str) else text_1,
            text_2=[text_2] if isinstance(text_2, str) else text_2,
            truncate_prompt_tokens=options.get("truncate_prompt_tokens"),
            slo=_slo_to_pb(options),
            priority=options.get("priority", 0),
            request_id=options.get("request_id", ""),
        )


def as_inputs(value: Input | Sequence[Input]) -> Sequence[Input]:
    """Makes a list of inputs of one text, one list of token ids, or several inputs."""
    is_one = isinstance(value, str) or (len(value) > 0 and isinstance(value[0], int))
    return [cast("Input", value)] if is_one else cast("Sequence[Input]", value)


def embeddings_from_pb(message: inference_pb2.InferResponse) -> Embeddings:
    return Embeddings(
        vectors=tuple(tuple(output.values) for output in message.outputs), usage=from_pb(message.usage, Usage)
    )


def classes_from_pb(message: inference_pb2.InferResponse) -> list[Classification]:
    labels = list(message.labels)
    return [
        Classification(
            label=labels[max(range(len(labels)), key=lambda i: output.values[i])],
            scores=dict(zip(labels, output.values, strict=True)),
        )
        for output in message.outputs
    ]


def rankings(scores: Sequence[float], documents: Sequence[str], *, top_n: int | None) -> list[Ranking]:
    """Orders documents, the best first."""
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    return [Ranking(index=i, document=documents[i], score=scores[i]) for i in order[:top_n]]


@contextmanager
def _checking(options: InferOptions) -> Iterator[None]:
    """Refuses options that do not exist, and says what cannot be converted."""
    if unknown := options.keys() - InferOptions.__annotations__:
        raise TypeError(f"got an unexpected keyword argument {min(unknown)!r}")
    try:
        yield
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"The request cannot be sent: {error}.", hint="Check its types and ranges."
        ) from error


def _input(value: Input) -> InferInput:
    if isinstance(value, str):
        return TextInput(value)
    if _is_pair(value):
        first, second = cast("tuple[str, str]", value)
        return TextInput(first, second)
    return tuple(cast("Sequence[int]", value))


def _is_pair(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(isinstance(part, str) for part in value)


def _slo_to_pb(options: InferOptions) -> common_pb2.Slo:
    slo_ms = options.get("slo_ms")
    return common_pb2.Slo(ttft_s=options.get("slo_ttft_s"), e2e_s=None if slo_ms is None else slo_ms / 1000)
