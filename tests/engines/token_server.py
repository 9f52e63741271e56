"""A server that speaks to Headway as vLLM 0.32 does, over a real socket: what Headway's client asks for, no more.

The tokens come from a worker with our own engine.
"""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from headway.v1 import common_pb2, worker_pb2
from tests.engines.worker import MAX_LEN, EngineWorker

_REASONS = {common_pb2.FINISH_REASON_STOP: "stop", common_pb2.FINISH_REASON_LENGTH: "length"}
_SAME = (
    "max_tokens",
    "min_tokens",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "stop_token_ids",
    "ignore_eos",
)


@dataclass
class TokenServer:
    """Serves what a worker has loaded under the name `inner`.

    Attributes:
        names: of the model in /v1/models, and where it was loaded from.
        bodies: of the requests that came.
        is_stuck: it takes requests, and computes nothing for them.
    """

    worker: EngineWorker
    inner: str
    names: tuple[str, str] = ("tiny", "/models/tiny")
    version: str = "0.32.0"
    has_generate: bool = True
    api_key: str = ""
    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    is_stuck: bool = False
    _server: uvicorn.Server | None = None

    def die(self) -> None:
        """Breaks off all that runs, and takes nothing more."""
        assert self._server is not None
        self._server.should_exit = self._server.force_exit = True
        for listener in self._server.servers:
            listener.close()
        self.break_off()

    def break_off(self) -> None:
        """Ends all connections."""
        assert self._server is not None
        for connection in tuple(self._server.server_state.connections):
            connection.transport.abort()  # type: ignore[union-attr]

    def app(self) -> Starlette:
        routes = [
            Route("/version", self._version),
            Route("/health", self._health),
            Route("/v1/models", self._models),
            Route("/metrics", self._metrics),
        ]
        if self.has_generate:
            routes.append(Route("/inference/v1/generate", self._generate, methods=["POST"]))
        return Starlette(routes=routes)

    async def _version(self, _: Request) -> Response:
        return JSONResponse({"version": self.version})

    async def _health(self, _: Request) -> Response:
        return Response()

    async def _models(self, request: Request) -> Response:
        if self.api_key and request.headers.get("authorization") != f"Bearer {self.api_key}":
            return JSONResponse({"error": "Unauthorized"}, status_code=401)
        name, root = self.names
        adapter = {"id": "calm", "root": "/adapters/calm", "parent": name, "max_model_len": None}
        model = {"id": name, "root": root, "parent": None, "max_model_len": MAX_LEN}
        return JSONResponse({"object": "list", "data": [adapter, model]})

    async def _metrics(self, _: Request) -> Response:
        load = await self.worker.load_report()
        usage = 1 - load.num_free_blocks / load.num_blocks
        labels = f'block_size="{load.block_size}",num_gpu_blocks="{load.num_blocks + 1}",enable_prefix_caching="True"'
        return PlainTextResponse(
            "# TYPE vllm:cache_config_info gauge\n"
            f'vllm:cache_config_info{{engine="0",{labels}}} 1.0\n'
            "# TYPE vllm:kv_cache_usage_perc gauge\n"
            f'vllm:kv_cache_usage_perc{{engine="0",model_name="tiny"}} {usage}\n'
            "# TYPE vllm:num_preemptions counter\n"
            f'vllm:num_preemptions_total{{engine="0",model_name="tiny"}} {load.num_preemptions}.0\n'
            "# TYPE vllm:prefix_cache_queries counter\n"
            f'vllm:prefix_cache_queries_total{{engine="0",model_name="tiny"}} {load.num_prefix_query_tokens}.0\n'
            "# TYPE vllm:generation_tokens counter\n"
            f'vllm:generation_tokens_total{{engine="0",model_name="tiny"}} {load.work.num_decodes}.0\n'
        )

    async def _generate(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        assert body["stream"]
        assert body["stream_options"] == {"include_usage": True}
        asked = body["sampling_params"]
        fields = {name: asked[name] for name in _SAME} | {"seed": asked["seed"] or 0}
        if asked["logprobs"] is not None:
            fields["num_logprobs"] = asked["logprobs"]
        bias = [common_pb2.LogitBias(token_id=int(token), bias=by) for token, by in (asked["logit_bias"] or {}).items()]
        submitted = worker_pb2.SubmitSequence(
            request_id=body["request_id"],
            model=self.inner,
            prompt_token_ids=body["token_ids"],
            sampling=common_pb2.SamplingParams(**fields, logit_bias=bias),
            cache_salt=body.get("cache_salt", ""),
        )
        return StreamingResponse(self._events(submitted), media_type="text/event-stream")

    async def _events(self, submitted: worker_pb2.SubmitSequence) -> AsyncIterator[str]:
        num_cached = 0
        if self.is_stuck:
            await asyncio.Event().wait()
        async with self.worker.stream(submitted) as call:
            await call.done_writing()
            async for message in call:
                for output in message.outputs:
                    num_cached = max(num_cached, output.num_cached_tokens)
                    yield _event({"choices": [_choice(output)]})
        usage = {
            "prompt_tokens": len(submitted.prompt_token_ids),
            "prompt_tokens_details": {"cached_tokens": num_cached},
        }
        yield _event({"choices": [], "usage": usage})
        yield "data: [DONE]\n\n"


def _event(chunk: dict[str, Any]) -> str:
    return f"data: {json.dumps(chunk)}\n\n"


def _choice(output: Any) -> dict[str, Any]:
    content = [
        {
            "token_id": entry.token_id,
            "logprob": entry.logprob,
            "rank": entry.rank,
            "top_logprobs": [
                {"token_id": token_id, "logprob": logprob, "rank": place + 1}
                for place, (token_id, logprob) in enumerate(zip(entry.top_token_ids, entry.top_logprobs, strict=True))
            ],
        }
        for entry in output.logprobs
    ]
    return {
        "index": 0,
        "token_ids": list(output.token_ids),
        "finish_reason": _REASONS.get(output.finish_reason),
        "logprobs": {"content": content} if content else None,
    }


@asynccontextmanager
async def token_server(server: TokenServer) -> AsyncIterator[TokenServer]:
    """Runs it in this event loop; it may have died meanwhile."""
    listener = socket.create_server(("127.0.0.1", 0))
    server.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    config = uvicorn.Config(server.app(), lifespan="off", log_config=None, ws="none", timeout_graceful_shutdown=5)
    server._server = uvicorn.Server(config)
    running = asyncio.create_task(server._server._serve(sockets=[listener]))  # without handlers of signals
    try:
        yield server
    finally:
        server._server.should_exit = True
        await running
        listener.close()
