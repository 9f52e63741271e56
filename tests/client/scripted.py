"""A real gRPC server that answers as its script says: what clients and commands talk to in tests."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc

from headway.core.errors import InvalidArgumentError, NotFoundError, ResourceExhaustedError
from headway.rpc.credentials import Credentials
from headway.rpc.interceptors import CallInterceptor
from headway.v1 import common_pb2, controller_pb2, inference_pb2, inference_pb2_grpc, planner_pb2, router_pb2

WORDS = ("Once", " upon", " a", " time", ".")
SPEC = common_pb2.ModelSpec(
    family="llama",
    architecture="LlamaForCausalLM",
    vocab_size=512,
    hidden_size=64,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    intermediate_size=128,
    max_position=1024,
    dtype="float32",
    activation="silu",
    norm_eps=1e-5,
    eos_token_ids=[2],
)


@dataclass
class ScriptedService(inference_pb2_grpc.InferenceServiceServicer):
    """Tells WORDS to everyone. The prompt 'endless' never ends, 'full' is refused, 'broken' fails half-way.

    Attributes:
        models: names of the models that it serves.
        chat_is_endless: whether answers to messages never end either.
        requests: what was asked, in order.
        started, cancelled: set when an endless answer began, and when it was given up.
    """

    models: tuple[str, ...] = ("tiny",)
    chat_is_endless: bool = False
    requests: list[inference_pb2.GenerateRequest] = field(default_factory=list)
    started: threading.Event = field(default_factory=threading.Event)
    cancelled: threading.Event = field(default_factory=threading.Event)

    async def Generate(  # noqa: N802 - the method's name in the protocol
        self, request: inference_pb2.GenerateRequest, context: Any
    ) -> AsyncIterator[inference_pb2.GenerateResponse]:
        self.requests.append(request)
        if request.model not in self.models:
            raise NotFoundError(f"There is no model {request.model}.", hint="Ask for tiny.", field="model")
        if request.text == "full":
            raise ResourceExhaustedError("The fleet is full.", retry_after_s=1.5)
        if request.text == "endless" or (self.chat_is_endless and request.HasField("chat")):
            async for response in self._endless():
                yield response
        for index in range(request.options.n or 1):
            for token_id, word in enumerate(WORDS):
                if request.text == "broken" and token_id == 2:
                    raise InvalidArgumentError("It broke.")
                yield _response(request, index=index, token_id=token_id, word=word)
        usage = common_pb2.Usage(prompt_tokens=3, completion_tokens=len(WORDS), cached_tokens=1)
        yield inference_pb2.GenerateResponse(request_id=request.request_id, usage=usage)

    async def _endless(self) -> AsyncIterator[inference_pb2.GenerateResponse]:
        self.started.set()
        try:
            while True:
                yield inference_pb2.GenerateResponse(text="again ", token_ids=[1])
                await asyncio.sleep(0.01)
        finally:
            self.cancelled.set()

    async def ListModels(  # noqa: N802
        self, request: Any, context: Any
    ) -> inference_pb2.ListModelsResponse:
        models = [
            inference_pb2.ServedModel(name=name, max_model_len=1024, num_replicas=1, spec=SPEC) for name in self.models
        ]
        return inference_pb2.ListModelsResponse(models=models)

    async def GetClusterStatus(  # noqa: N802
        self, request: Any, context: Any
    ) -> inference_pb2.GetClusterStatusResponse:
        hardware = common_pb2.Hardware(device="cpu", name="Test CPU", num_threads=2, memory_bytes=1 << 30)
        return inference_pb2.GetClusterStatusResponse(
            controller=controller_pb2.GetStatusResponse(
                processes=[controller_pb2.ProcessStatus(name="router", kind="router", pid=7, state="ready")],
                workers=[
                    controller_pb2.WorkerStatus(
                        worker_id="worker-0", group_id="group-0", model="tiny", state="ready", hardware=hardware
                    )
                ],
                plan_id="plan-1",
                ready=True,
                progress=1.0,
            ),
            fleet=router_pb2.GetFleetResponse(
                groups=[
                    router_pb2.GroupLoad(
                        group_id="group-0",
                        worker_id="worker-0",
                        model="tiny",
                        num_running=3,
                        num_blocks=1024,
                        num_free_blocks=512,
                    )
                ],
                attainments=[router_pb2.ModelAttainment(model="tiny", num_met=9, num_missed=1)],
                num_in_flight=3,
            ),
            plan=_plan(),
        )


def _response(
    request: inference_pb2.GenerateRequest, *, index: int, token_id: int, word: str
) -> inference_pb2.GenerateResponse:
    is_last = token_id == len(WORDS) - 1
    response = inference_pb2.GenerateResponse(
        request_id=request.request_id,
        index=index,
        text=word,
        token_ids=[token_id],
        finish_reason=common_pb2.FINISH_REASON_STOP if is_last else common_pb2.FINISH_REASON_UNSPECIFIED,
    )
    if request.options.HasField("logprobs"):
        response.logprobs.append(
            common_pb2.TokenLogprobs(
                token_id=token_id, logprob=-0.5, rank=1, top_token_ids=[token_id], top_logprobs=[-0.5]
            )
        )
    return response


def _plan() -> planner_pb2.ServingPlan:
    latency = common_pb2.LatencyModel(base_s=0.002, per_prefill_token_s=1e-5, origin="estimated")
    assignment = planner_pb2.Assignment(
        group_id="group-0",
        worker_id="worker-0",
        model="tiny",
        weight_bytes=1 << 20,
        kv_cache_bytes=1 << 24,
        reserved_bytes=1 << 22,
        num_blocks=1024,
        block_size=16,
        max_num_seqs=64,
        max_num_batched_tokens=512,
        max_model_len=1024,
        enable_prefix_cache=True,
        prediction=planner_pb2.Prediction(
            ttft_s=0.02, tpot_s=0.002, tpot_loaded_s=0.01, output_tokens_per_s=500, latency=latency
        ),
    )
    return planner_pb2.ServingPlan(
        plan_id="plan-1",
        created_at_s=1.7e9,
        models=[_model()],
        assignments=[assignment],
    )


def _model() -> common_pb2.ModelDeployment:
    return common_pb2.ModelDeployment(name="tiny", directory="/models/tiny", spec=SPEC, slo=common_pb2.Slo(ttft_s=0.5))


@contextmanager
def serving(service: ScriptedService, *, token: str | None = None) -> Iterator[str]:
    """Serves on a free port, in a thread with an event loop of its own; yields host:port."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="scripted-service", daemon=True)
    thread.start()

    async def start() -> tuple[grpc.aio.Server, int]:
        guard = None if token is None else Credentials.of_stack(token, role="gateway")
        server = grpc.aio.server(interceptors=[CallInterceptor(guard)])
        inference_pb2_grpc.add_InferenceServiceServicer_to_server(service, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        return server, port

    server, port = asyncio.run_coroutine_threadsafe(start(), loop).result()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(None), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
