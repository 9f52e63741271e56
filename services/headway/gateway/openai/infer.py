"""Answers of POST /v1/embeddings, /v1/classify, /v1/rerank and /v1/score."""

import base64
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from starlette.types import Send

from headway.core.errors import InvalidArgumentError
from headway.gateway.infer.shorten import MAX_INLINE_ROWS, check_dimensions, shorten
from headway.gateway.infer.task import classifying, embedding, scoring
from headway.gateway.job import Arrival
from headway.gateway.openai.handler import RequestHandler
from headway.gateway.openai.infer_schema import (
    ClassifyRequest,
    EmbeddingRequest,
    RerankRequest,
    ScoreRequest,
)
from headway.gateway.openai.pieces import dumps_in_pieces
from headway.gateway.openai.strict import ModelRequest
from headway.gateway.service import GatewayService
from headway.observe.logging import request_id_var

R = TypeVar("R", bound=ModelRequest)

Document: TypeAlias = dict[str, Any]
Infer: TypeAlias = Callable[[GatewayService, R, Arrival], Awaitable[Document]]


class InferHandler(RequestHandler[R]):
    """Answers requests that generate nothing, each with one document.

    Args:
        infer: computes it.
    """

    def __init__(self, service: GatewayService, kind: type[R], infer: Infer[R]) -> None:
        super().__init__(service, kind)
        self._infer = infer

    async def reply(self, request: R, arrival: Arrival, send: Send) -> None:
        document = await self._infer(self.service, request, arrival)
        is_long = len(document.get("data") or document.get("results") or ()) > MAX_INLINE_ROWS
        content = await self.service.threads.run(
            lambda: dumps_in_pieces(document), is_long=is_long, tenant=arrival.tenant
        )
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
        headers += self.ignored.headers
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": content})


async def embed(service: GatewayService, request: EmbeddingRequest, arrival: Arrival) -> Document:
    """Embeds the inputs and answers in the OpenAI API's shape."""
    model = embedding(await service.awake(request.model))
    check_dimensions(request.dimensions, width=model.spec.hidden_size)
    answer = await service.infer(
        model, request.inputs, field="input", truncate_to=request.truncate_prompt_tokens, arrival=arrival
    )
    vectors = shorten(answer.vectors, request.dimensions)
    encode = _as_base64 if request.encoding_format == "base64" else _as_is
    return {
        "object": "list",
        "data": [{"object": "embedding", "index": i, "embedding": encode(row)} for i, row in enumerate(vectors)],
        "model": model.name,
        "usage": _usage(answer.num_tokens),
    }


async def classify(service: GatewayService, request: ClassifyRequest, arrival: Arrival) -> Document:
    """Classifies the inputs and answers in vLLM's shape: the best label of each input, and the score of every label."""
    model = classifying(await service.awake(request.model))
    answer = await service.infer(
        model, request.inputs, field="input", truncate_to=request.truncate_prompt_tokens, arrival=arrival
    )
    labels = model.spec.encoder.labels if model.spec.encoder is not None else ()
    return {
        "id": f"classify-{request_id_var.get()}",
        "object": "list",
        "created": int(time.time()),
        "model": model.name,
        "data": [
            {"index": i, "label": labels[int(scores.argmax())], "probs": scores, "num_classes": len(labels)}
            for i, scores in enumerate(answer.vectors)
        ],
        "usage": _usage(answer.num_tokens),
    }


async def rerank(service: GatewayService, request: RerankRequest, arrival: Arrival) -> Document:
    """Ranks documents by their relevance to a query, the best first, and answers in the shape that Jina and Cohere
    share.
    """
    model = scoring(await service.awake(request.model))
    if request.top_n is not None and request.top_n < 1:
        raise InvalidArgumentError(f"top_n is {request.top_n}; it must be at least 1.", field="top_n")
    scores = await service.score(model, request.pairs, truncate_to=request.truncate_prompt_tokens, arrival=arrival)
    best = sorted(range(len(scores.values)), key=lambda i: -scores.values[i])[: request.top_n]
    return {
        "id": f"rerank-{request_id_var.get()}",
        "model": model.name,
        "results": [
            {"index": i, "relevance_score": float(scores.values[i])}
            | ({"document": {"text": request.documents[i]}} if request.return_documents else {})
            for i in best
        ],
        "usage": _usage(scores.num_tokens),
    }


async def score(service: GatewayService, request: ScoreRequest, arrival: Arrival) -> Document:
    """Scores how much two texts belong together, in vLLM's shape."""
    model = scoring(await service.awake(request.model))
    scores = await service.score(model, request.pairs, truncate_to=request.truncate_prompt_tokens, arrival=arrival)
    return {
        "id": f"score-{request_id_var.get()}",
        "object": "list",
        "created": int(time.time()),
        "model": model.name,
        "data": [{"index": i, "object": "score", "score": float(each)} for i, each in enumerate(scores.values)],
        "usage": _usage(scores.num_tokens),
    }


def _as_is(row: NDArray[np.float32]) -> NDArray[np.float32]:
    return row


def _as_base64(row: NDArray[np.float32]) -> str:
    return base64.b64encode(row.astype("<f4").tobytes()).decode()


def _usage(num_tokens: int) -> dict[str, int]:
    return {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
