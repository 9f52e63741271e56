"""Python clients for a running Headway stack, over gRPC.

    from headway.client import Client

    with Client() as client:  # the stack that `headway up` started on this machine
        for chunk in client.generate("Once upon a time", max_tokens=32, temperature=0):
            print(chunk.text, end="", flush=True)

`AsyncClient` has the same methods for asyncio. Faults are raised as `headway.core.errors.HeadwayError`.
"""

from headway.client.aio import AsyncClient
from headway.client.chunk import Chunk, ServedModel, Usage
from headway.client.client import Client
from headway.client.infer import Classification, Embeddings, InferOptions, Ranking
from headway.client.prompt import GenerateOptions, Message, Prompt
from headway.client.status import ClusterStatus
from headway.core.errors import HeadwayError
from headway.core.request import FinishReason, TokenLogprobs

__all__ = [
    "AsyncClient",
    "Chunk",
    "Classification",
    "Client",
    "ClusterStatus",
    "Embeddings",
    "FinishReason",
    "GenerateOptions",
    "HeadwayError",
    "InferOptions",
    "Message",
    "Prompt",
    "Ranking",
    "ServedModel",
    "TokenLogprobs",
    "Usage",
]
