"""The synchronous client of a running stack."""

from collections.abc import Callable, Generator, Sequence
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
from headway.rpc.certificates import Certificates, open_blocking_channel
from headway.rpc.convert import from_pb
from headway.rpc.status import error_from_rpc
from headway.v1 import inference_pb2, inference_pb2_grpc

Q = TypeVar("Q", bound=Protobuf)
R = TypeVar("R", bound=Protobuf)


class Client:
    """A connection to a running stack; many threads may share it.

        with Client("127.0.0.1:8001", api_key="...") as client:
            print(client.generate_text([{"role": "user", "content": "Hello!"}], max_tokens=64))

    Args:
        endpoint: host:port of the gateway's gRPC service; None takes HEADWAY_ENDPOINT, or the stack that
            `headway up` started on this machine.
        api_key: key that goes with every call; None takes HEADWAY_API_KEY, or the key of that stack.
        state_dir: state directory of the local stack to connect to, where it is not the default one.
        tls_ca: PEM file of the authority that the gateway's certificate is checked by; None takes HEADWAY_TLS_CA, or
            what that stack says. Without any, calls are not encrypted.
        timeout_s: seconds that every call may take but `generate`, which has a limit of its own.

    Raises:
        NotFoundError: no endpoint was given and no stack runs here.
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
        self._channel = open_blocking_channel(self._address.endpoint, certificates, options=CHANNEL_OPTIONS)
        self._stub = inference_pb2_grpc.InferenceServiceStub(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection, and whatever is being generated over it."""
        self._channel.close()

    def generate(
        self, prompt: Prompt, *, model: str | None = None, **options: Unpack[GenerateOptions]
    ) -> Generator[Chunk, None, None]:
        """Generates, and yields the pieces as they come. The request starts with the first `next`.

        Leaving the loop, or closing the iterator, cancels the request on the server at once.

        Args:
            prompt: text, token ids or messages.
            model: as `models` names it; may be left out when one is served.
            options: see `GenerateOptions`.

        Raises:
            InvalidArgumentError, NotFoundError, ResourceExhaustedError, UnavailableError, DeadlineExceededError ...:
                what the server refused, or why it could not be reached.
        """
        request = request_to_pb(prompt, model=model, options=options)
        return self._stream(request, timeout_s=options.get("timeout_s"))

    def generate_text(self, prompt: Prompt, *, model: str | None = None, **options: Unpack[GenerateOptions]) -> str:
        """Generates one sequence and returns its whole text; arguments and errors as for `generate`."""
        check_single(options)
        return "".join(chunk.text for chunk in self.generate(prompt, model=model, **options))

    def tokenize(self, prompt: Prompt, *, model: str | None = None) -> list[int]:
        """Returns the token ids of a text, or of messages without the opening of an answer."""
        request = tokenize_to_pb(prompt, model=model or only_model(self.models()))
        return list(self._call(self._stub.Tokenize, request).token_ids)

    def embed(
        self,
        inputs: Input | Sequence[Input],
        *,
        model: str | None = None,
        dimensions: int | None = None,
        **options: Unpack[InferOptions],
    ) -> Embeddings:
        """Returns the vector of each input.

        Args:
            inputs: a text, token ids, or a list of these.
            model: as `models` names it; may be left out when one is served.
            dimensions: shortens the vectors, for models that were trained for it.
            options: see `InferOptions`.

        Raises:
            InvalidArgumentError, NotFoundError, ResourceExhaustedError, UnavailableError, DeadlineExceededError ...:
                what the server refused, or why it could not be reached.
        """
        request = infer_to_pb(as_inputs(inputs), model=model, options=options, dimensions=dimensions)
        return embeddings_from_pb(self._infer(request, timeout_s=options.get("timeout_s")))

    def classify(
        self, inputs: Input | Sequence[Input], *, model: str | None = None, **options: Unpack[InferOptions]
    ) -> list[Classification]:
        """Returns the label of each input; arguments and errors as for `embed`. A list may hold pairs of texts too."""
        request = infer_to_pb(as_inputs(inputs), model=model, options=options)
        return classes_from_pb(self._infer(request, timeout_s=options.get("timeout_s")))

    def score(
        self,
        text_1: str | Sequence[str],
        text_2: str | Sequence[str],
        *,
        model: str | None = None,
        **options: Unpack[InferOptions],
    ) -> list[float]:
        """Returns how much two texts belong together, as a cross-encoder judges it, or by the cosine between their
        embeddings, where the model gives those.

        Args:
            text_1: a text for all of the others, or as many texts.
            text_2: a text, or several.
            model: as `models` names it; may be left out when one is served.
            options: see `InferOptions`.

        Raises:
            InvalidArgumentError, NotFoundError, ResourceExhaustedError, UnavailableError, DeadlineExceededError ...:
                what the server refused, or why it could not be reached.
        """
        request = score_to_pb(text_1, text_2, model=model, options=options)
        request.model = request.model or only_model(self.models())
        response = self._call(self._stub.Score, request, timeout_s=options.get("timeout_s"))
        return list(response.scores)

    def rerank(
        self,
        query: str,
        documents: Sequence[str],
        *,
        model: str | None = None,
        top_n: int | None = None,
        **options: Unpack[InferOptions],
    ) -> list[Ranking]:
        """Orders documents by their relevance to the query, the best first, `top_n` of them; errors as for `score`."""
        scores = self.score(query, list(documents), model=model, **options)
        return rankings(scores, documents, top_n=top_n)

    def models(self) -> list[ServedModel]:
        """Lists the models that can be asked for."""
        return models_from_pb(self._call(self._stub.ListModels, inference_pb2.ListModelsRequest()))

    def status(self) -> ClusterStatus:
        """Returns the stack's state: processes, workers, load, attainment and the plan in use."""
        request, metadata = inference_pb2.GetClusterStatusRequest(), self._address.operator_metadata
        return from_pb(self._call(self._stub.GetClusterStatus, request, metadata=metadata), ClusterStatus)

    def _stream(
        self, request: inference_pb2.GenerateRequest, *, timeout_s: float | None
    ) -> Generator[Chunk, None, None]:
        request.model = request.model or only_model(self.models())
        call = self._stub.Generate(request, timeout=timeout_s, metadata=self._address.metadata)
        try:
            for message in call:
                yield chunk_from_pb(message)
        except grpc.RpcError as error:
            raise error_from_rpc(error, tls=self._address.tls) from None
        finally:
            call.cancel()

    def _infer(self, request: inference_pb2.InferRequest, *, timeout_s: float | None) -> inference_pb2.InferResponse:
        request.model = request.model or only_model(self.models())
        return self._call(self._stub.Infer, request, timeout_s=timeout_s)

    def _call(
        self,
        method: "Callable[..., R]",
        request: Q,
        *,
        timeout_s: float | None = None,
        metadata: Metadata | None = None,
    ) -> R:
        metadata = self._address.metadata if metadata is None else metadata
        try:
            return method(request, timeout=timeout_s or self._timeout_s, metadata=metadata)
        except grpc.RpcError as error:
            raise error_from_rpc(error, tls=self._address.tls) from None
