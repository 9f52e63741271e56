"""The HTTP application: it maps paths to handlers."""

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeAlias

import orjson
from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from headway.core.errors import HeadwayError
from headway.gateway.caller import Caller
from headway.gateway.middleware import RequestMiddleware
from headway.gateway.model import ServedModel
from headway.gateway.openai import answer_schema
from headway.gateway.openai.document import JSON, KEY, METRICS, OPERATOR_KEY, answers, asked
from headway.gateway.openai.endpoint import GenerationHandler, prepare_chat, prepare_completion, prepare_response
from headway.gateway.openai.error import error_body, error_headers, kind_of, status_body
from headway.gateway.openai.infer import InferHandler, classify, embed, rerank, score
from headway.gateway.openai.infer_schema import ClassifyRequest, EmbeddingRequest, RerankRequest, ScoreRequest
from headway.gateway.openai.response_schema import ResponseRequest
from headway.gateway.openai.schema import ChatRequest, CompletionRequest, GenerationRequest
from headway.gateway.openai.strict import ModelRequest
from headway.gateway.openai.tokens import detokenize, tokenize
from headway.gateway.openai.tokens_schema import DetokenizeRequest, TokenizeRequest
from headway.gateway.service import GatewayService
from headway.observe.exposition import CONTENT_TYPE, generate_latest


def make_app(service: GatewayService) -> ASGIApp:
    """Makes the HTTP application: all routes, behind the middleware."""
    app = FastAPI(title="Headway", version=_version(), description="The OpenAI API, and what operators ask.")
    handlers = _add_handlers(app, service)
    _add_models(app, service)
    _add_operations(app, service)
    app.add_exception_handler(HeadwayError, _on_headway_error)
    app.add_exception_handler(HTTPException, _on_http_error)
    paths = frozenset(route.path for route in app.routes if isinstance(route, Route) and "{" not in route.path)
    return RequestMiddleware(
        app, handlers=handlers, paths=paths, keys=service.keys, operator_keys=service.operator_keys
    )


# What vLLM, and the clients of Cohere and Jina, call paths of ours.
_ALSO = {
    "/v1/classify": ("/classify",),
    "/v1/rerank": ("/rerank", "/v2/rerank"),
    "/v1/score": ("/score",),
}

Post: TypeAlias = Callable[
    [str, type[ModelRequest], type[answer_schema.Answer]], Callable[[Callable[[], Response]], None]
]


def _post(app: FastAPI, handlers: dict[str, Callable[[], ASGIApp]]) -> Post:
    """A decorator of what makes a path's handlers."""

    def post(
        path: str, kind: type[ModelRequest], answer: type[answer_schema.Answer]
    ) -> Callable[[Callable[[], Response]], None]:
        def add(endpoint: Callable[[], Response]) -> None:
            for name in (path, *_ALSO.get(path, ())):
                app.add_api_route(
                    name,
                    endpoint,
                    methods=["POST"],
                    dependencies=[KEY],
                    openapi_extra=asked(kind),
                    responses=answers(answer, streams=issubclass(kind, GenerationRequest)),
                    response_model=None,
                    include_in_schema=name == path,
                )
                handlers[name] = endpoint

        return add

    return post


def _add_handlers(app: FastAPI, service: GatewayService) -> dict[str, Callable[[], ASGIApp]]:
    """Documents them like any other routes; returns what answers a POST to each path."""
    handlers: dict[str, Callable[[], ASGIApp]] = {}
    post = _post(app, handlers)

    @post("/v1/completions", CompletionRequest, answer_schema.Completion)
    def completions() -> Response:
        """Completes prompts with text."""
        return GenerationHandler(service, CompletionRequest, prepare_completion)

    @post("/v1/chat/completions", ChatRequest, answer_schema.ChatCompletion)
    def chat_completions() -> Response:
        """Answers a chat with the assistant's next message."""
        return GenerationHandler(service, ChatRequest, prepare_chat)

    @post("/v1/responses", ResponseRequest, answer_schema.Response)
    def responses() -> Response:
        """Answers a conversation with items: reasoning, the assistant's message, calls."""
        return GenerationHandler(service, ResponseRequest, prepare_response)

    @post("/v1/embeddings", EmbeddingRequest, answer_schema.Embeddings)
    def embeddings() -> Response:
        """Embeds texts as vectors."""
        return InferHandler(service, EmbeddingRequest, embed)

    @post("/v1/classify", ClassifyRequest, answer_schema.Classes)
    def classes() -> Response:
        """Classifies texts by the model's labels."""
        return InferHandler(service, ClassifyRequest, classify)

    @post("/v1/rerank", RerankRequest, answer_schema.Ranking)
    def ranking() -> Response:
        """Ranks documents by their relevance to a query."""
        return InferHandler(service, RerankRequest, rerank)

    @post("/v1/score", ScoreRequest, answer_schema.Scores)
    def scores() -> Response:
        """Scores how much two texts belong together."""
        return InferHandler(service, ScoreRequest, score)

    @post("/tokenize", TokenizeRequest, answer_schema.Tokens)
    def tokens() -> Response:
        """Turns a prompt or a chat into tokens."""
        return InferHandler(service, TokenizeRequest, tokenize)

    @post("/detokenize", DetokenizeRequest, answer_schema.Detokenized)
    def text() -> Response:
        """Turns tokens into text."""
        return InferHandler(service, DetokenizeRequest, detokenize)

    return handlers


def _add_models(app: FastAPI, service: GatewayService) -> None:
    @app.get("/v1/models", dependencies=[KEY], responses=answers(answer_schema.Models), response_model=None)
    async def models(request: Request) -> Response:
        """Every model that can be asked for."""
        await service.served_models.follower.catch_up()
        caller = _caller(service, request)
        data = [_model_document(model) for model in service.served_models.models.values() if caller.may_use(model.name)]
        return _json({"object": "list", "data": data})

    @app.get("/v1/models/{name:path}", dependencies=[KEY], responses=answers(answer_schema.Model), response_model=None)
    async def model(name: str, request: Request) -> Response:
        """Returns one model of the OpenAI API's list."""
        _caller(service, request).check_model(name)
        return _json(_model_document(await service.served_models.get(name)))


def _caller(service: GatewayService, request: Request) -> Caller:
    return service.callers.find(authorization=request.headers.get("authorization", ""), name="")


def _add_operations(app: FastAPI, service: GatewayService) -> None:
    @app.get("/health", responses=answers(answer_schema.Alive), response_model=None)
    @app.get("/live", responses=answers(answer_schema.Alive), response_model=None)
    async def live() -> Response:
        """Answers while the process runs."""
        return _json({"status": "ok"})

    @app.get("/ready", responses=answers(answer_schema.Readiness, unready=answer_schema.Readiness), response_model=None)
    async def ready() -> Response:
        """200 when every model of the plan has a worker that can answer, else 503 with what is missing. Faults that
        requests do not feel are told, too."""
        await service.served_models.follower.catch_up()
        missing, faults = service.waiting_for(), service.faults()
        document = {"ready": not missing, "waiting_for": missing} | ({"faults": faults} if faults else {})
        return _json(document, status=503 if missing else 200)

    @app.get(
        "/metrics",
        dependencies=[OPERATOR_KEY],
        response_class=PlainTextResponse,
        responses=METRICS,
        response_model=None,
    )
    async def metrics() -> Response:
        """Returns the gateway's metrics in Prometheus's text format."""
        return Response(generate_latest(), media_type=CONTENT_TYPE)

    @app.get(
        "/metrics/targets",
        dependencies=[OPERATOR_KEY],
        responses=answers(list[answer_schema.ScrapeTarget]),
        response_model=None,
    )
    async def metrics_targets() -> Response:
        """Returns the metrics addresses of every process of the stack, for Prometheus's HTTP service discovery."""
        return Response(orjson.dumps(service.scrape_targets()), media_type=JSON)

    @app.get("/version", responses=answers(answer_schema.Version), response_model=None)
    async def show_version() -> Response:
        """Headway's version."""
        return _json({"version": _version()})


def _version() -> str:
    """Returns the installed version; a source tree that only lies on the path has none."""
    try:
        return version("headway")
    except PackageNotFoundError:
        return "unknown"


def _model_document(model: ServedModel) -> dict[str, Any]:
    document = {
        "id": model.name,
        "object": "model",
        "created": int(model.created_at_s),
        "owned_by": "headway",
        "max_model_len": model.max_model_len,
        "task": model.spec.task.value,
    }
    return document | {"emulated": True} if model.is_emulated else document


def _json(document: dict[str, Any], *, status: int = 200) -> Response:
    return Response(orjson.dumps(document), status_code=status, media_type=JSON)


async def _on_headway_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HeadwayError)
    return Response(error_body(error), kind_of(error)[0], error_headers(error), media_type=JSON)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = {
        404: f"There is nothing at {request.url.path}. The API's paths start with /v1/.",
        405: f"{request.url.path} does not take {request.method}.",
    }.get(error.status_code, str(error.detail))
    content = status_body(error.status_code, message)
    return Response(content, error.status_code, dict(error.headers or {}), media_type=JSON)
