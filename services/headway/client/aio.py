"""The asyncio client of a running stack."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar, Unpack

import grpc
from google.protobuf.message import Message as Protobuf

from headway.client.address import CHANNEL_OPTIONS, Metadata, find_address
from headway.client.chunk import Chunk, ServedModel
from headway.client.convert import (
    check_single,
    chunk_from_pb,
    models_from_pb,
    only_model,
    request_to_pb,
    tokenize_to_pb,
)
from headway.client.infer import (
    Classification,
    Embeddings,
    InferOptions,
    Input,
    Ranking,
    as_inputs,
    classes_from_pb,
    embeddings_from_pb,
    infer_to_pb,
    rankings,
    score_to_pb,
)
from headway.client.prompt import GenerateOptions, Prompt
from headway.client.status import ClusterStatus
from headway.rpc.certificates import Certificates, open_channel
from headway.rpc.convert import from_pb
from headway.rpc.status import error_from_rpc
from headway.v1 import inference_pb2, inference_pb2_grpc

Q = TypeVar("Q", bound=Protobuf)
R = TypeVar("R", bound=Protobuf)


class AsyncClient:
    """A connection to a running stack, for one event loop. Arguments and errors are those of `Client`.

    async with AsyncClient() as client:
        async for chunk in client.generate("Once upon a time", max_tokens=32):
            print(chunk.text, end="", flush=True)
    """

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        api_key: str | None = None,
        state_dir: Path | None = None,
        tls_ca: Path | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        self._address = find_address(endpoint, api_key=api_key, state_dir=state_dir, tls_ca=tls_ca)
        self._timeout_s = timeout_s
        tls = self._address.tls
        certificates = None if tls is None else Certificates(tls)
        self._channel = open_channel(self._address.endpoint, certificates, options=CHANNEL_OPTIONS)
        self._stub: inference_pb2_grpc.InferenceServiceAsyncStub = inference_pb2_grpc.InferenceServiceStub(
            self._channel
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connection, and whatever is being generated over it."""
        await self._channel.close()

    def generate(
        self, prompt: Prompt, *, model: str | None = None, **options: Unpack[GenerateOptions]
    ) -> AsyncGenerator[Chunk, None]:
        """Generates as `Client.generate`, and yields the pieces as they come.

        Closing the iterator (`aclose`, or `async with contextlib.aclosing(...)`) cancels the request at once;
        cancelling the task that waits for it does too.
        """
        request = request_to_pb(prompt, model=model, options=options)
        return self._stream(request, timeout_s=options.get("timeout_s"))

    async def generate_text(
        self, prompt: Prompt, *, model: str | None = None, **options: Unpack[GenerateOptions]
    ) -> str:
        """Generates one sequence and returns its whole text."""
        check_single(options)
        return "".join([chunk.text async for chunk in self.generate(prompt, model=model, **options)])

    async def tokenize(self, prompt: Prompt, *, model: str | None = None) -> list[int]:
        """Returns the token ids of a text, or of messages without the opening of an answer."""
        request = tokenize_to_pb(prompt, model=model or only_model(await self.models()))
        return list((await self._call(self._stub.Tokenize, request)).token_ids)

    async def embed(
        self,
        inputs: Input | Sequence[Input],
        *,
        model: str | None = None,
        dimensions: int | None = None,
        **options: Unpack[InferOptions],
    ) -> Embeddings:
        """Returns the vector of each input, as `Client.embed`. Cancelling the task takes the request back."""
        request = infer_to_pb(as_inputs(inputs), model=model, options=options, dimensions=dimensions)
        return embeddings_from_pb(await self._infer(request, timeout_s=options.get("timeout_s")))

    async def classify(
        self, inputs: Input | Sequence[Input], *, model: str | None = None, **options: Unpack[InferOptions]
    ) -> list[Classification]:
        """Returns the label of each input, as `Client.classify`."""
        request = infer_to_pb(as_inputs(inputs), model=model, options=options)
        return classes_from_pb(await self._infer(request, timeout_s=options.get("timeout_s")))

    async def score(
        self,
        text_1: str | Sequence[str],
        text_2: str | Sequence[str],
        *,
        model: str | None = None,
        **options: Unpack[InferOptions],
    ) -> list[float]:
        """Returns the score of each pair of texts, as `Client.score`."""
        request = score_to_pb(text_1, text_2, model=model, options=options)
        request.model = request.model or only_model(await self.models())
        response = await self._call(self._stub.Score, request, timeout_s=options.get("timeout_s"))
        return list(response.scores)

    async def rerank(
        self,
        query: str,
        documents: Sequence[str],
        *,
        model: str | None = None,
        top_n: int | None = None,
        **options: Unpack[InferOptions],
    ) -> list[Ranking]:
        """Orders documents by their relevance to the query, as `Client.rerank`."""
        scores = await self.score(query, list(documents), model=model, **options)
        return rankings(scores, documents, top_n=top_n)

    async def models(self) -> list[ServedModel]:
        """Lists the models that can be asked for."""
        return models_from_pb(await self._call(self._stub.ListModels, inference_pb2.ListModelsRequest()))

    async def status(self) -> ClusterStatus:
        """Returns the stack's state: processes, workers, load, attainment and the plan in use."""
        request = inference_pb2.GetClusterStatusRequest()
        metadata = self._address.operator_metadata
        return from_pb(await self._call(self._stub.GetClusterStatus, request, metadata=metadata), ClusterStatus)

    async def _stream(
        self, request: inference_pb2.GenerateRequest, *, timeout_s: float | None
    ) -> AsyncGenerator[Chunk, None]:
        request.model = request.model or only_model(await self.models())
        call = self._stub.Generate(request, timeout=timeout_s, metadata=self._address.metadata)
        try:
            async for message in call:
                yield chunk_from_pb(message)
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error, tls=self._address.tls) from None
        finally:
            call.cancel()

    async def _infer(
        self, request: inference_pb2.InferRequest, *, timeout_s: float | None
    ) -> inference_pb2.InferResponse:
        request.model = request.model or only_model(await self.models())
        return await self._call(self._stub.Infer, request, timeout_s=timeout_s)

    async def _call(
        self,
        method: Callable[..., Awaitable[R]],
        request: Q,
        *,
        timeout_s: float | None = None,
        metadata: Metadata | None = None,
    ) -> R:
        metadata = self._address.metadata if metadata is None else metadata
        try:
            return await method(request, timeout=timeout_s or self._timeout_s, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            raise error_from_rpc(error, tls=self._address.tls) from None
