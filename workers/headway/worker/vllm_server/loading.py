"""Loading a model that a vLLM server has loaded: what it serves is checked, no more."""

import asyncio
from pathlib import Path

from headway.checkpoint.model_directory import read_checkpoint
from headway.core.engine_kind import EngineKind
from headway.core.engine_server import ServerFacts
from headway.core.errors import FailedPreconditionError
from headway.core.load_order import LoadOrder
from headway.observe.tracing import Tracing
from headway.worker.load_call import LoadCall
from headway.worker.loaded import Start
from headway.worker.loaded_model import LoadedModel
from headway.worker.owner import Owner
from headway.worker.vllm_server.engine import VllmServerEngine
from headway.worker.vllm_server.server import VllmServer, check_serves, describe_server


class VllmServerLoader:
    """Stands in for a server; implements `Loader`.

    Args:
        served: by the server when the worker began.
        events: where it publishes those of its cache; empty where it does not.
    """

    def __init__(self, served: ServerFacts, *, events: str = "") -> None:
        self._served = served
        self._events = events

    def prepare(self, order: LoadOrder, *, call: LoadCall) -> Start:
        """See `Loader.prepare`.

        Raises:
            FailedPreconditionError: the server is gone, or serves something else than the order says; or the order is
                for another engine.
        """
        if order.engine is not EngineKind.VLLM_SERVER or order.is_in_group:
            raise FailedPreconditionError(
                f"The worker stands in for a vLLM server; '{order.model}' is to run on {order.engine}, "
                f"{order.parallel}.",
                hint="Make a plan for the workers that are there.",
            )
        call.tell(0.0, f"asking {self._served.url}")
        described = asyncio.run(describe_server(self._served.url, model=order.model, events=self._events))
        served = described.served
        check_serves(served, directory=order.directory)
        for name, wanted, found in (
            ("block_size", order.block_size, served.block_size),
            ("num_blocks", order.num_blocks, min(order.num_blocks, served.num_blocks)),
            ("max_model_len", order.max_model_len, min(order.max_model_len, served.max_model_len)),
        ):
            if wanted != found:
                raise FailedPreconditionError(
                    f"The vLLM server at {served.url} has {name} {found}, and the plan says {wanted}.",
                    hint="Make a plan for the server as it is.",
                    field=name,
                )
        spec = read_checkpoint(
            Path(order.directory),
            dtype=order.dtype or None,
            generation_config=order.generation_config,
            has_weights=False,
            engine=order.engine,
        ).spec

        def start_model(owner: Owner, tracing: Tracing) -> LoadedModel:
            engine = VllmServerEngine(
                order,
                spec,
                server=VllmServer(served.url),
                served=served,
                version=described.version,
                events=self._events,
            )
            return LoadedModel(order, engine=engine, owner=owner, tracing=tracing)

        return start_model
