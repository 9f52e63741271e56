"""Starts vLLM as a load order says."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, Protocol

from vllm.config.kv_events import KVEventsConfig
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.metrics.loggers import StatLoggerBase
from vllm.v1.metrics.stats import SchedulerStats

from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.line import QueuePolicy
from headway.core.load_order import LoadOrder
from headway.core.model import ModelSpec
from headway.core.shard import shard_kv_bytes_per_token, shard_of
from headway.worker.vllm.block_feed import BlockFeed
from headway.worker.vllm.engine import VllmEngine

_TETHER = "headway.worker.vllm.tether.Tether"


class Started(Protocol):
    def __call__(self, *, version: str, weight_bytes: int) -> VllmEngine: ...


class _Parser(FlexibleArgumentParser):  # type: ignore[misc]
    def error(self, message: str) -> NoReturn:
        raise InvalidArgumentError(f"vLLM refuses --engine-args: {message}.", field="--engine-args")


class _Iterations(StatLoggerBase):  # type: ignore[misc]
    """What vLLM's scheduler tells of each step, for an engine that comes to listen."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.listener: Callable[[SchedulerStats], None] | None = None

    def record(self, scheduler_stats: SchedulerStats | None, *_: Any, **__: Any) -> None:
        if scheduler_stats is not None and self.listener is not None:
            self.listener(scheduler_stats)

    def log_engine_initialized(self) -> None:
        """Nobody needs to know."""


def start_vllm(order: LoadOrder, spec: ModelSpec, *, directory: Path, queue_policy: QueuePolicy) -> Started:
    """Returns when the model is loaded, with what makes its engine on the event loop.

    Raises:
        InvalidArgumentError: vLLM does not know an argument of the order's own.
        FailedPreconditionError: the model's attention takes blocks of another size only.
        Exception: vLLM's, where it cannot load the model so.
    """
    feed = BlockFeed(f"ipc://{directory / 'events'}")
    arguments = _arguments(order, spec, feed=feed, queue_policy=queue_policy)
    iterations: list[_Iterations] = []

    def listen(*_: Any, **__: Any) -> _Iterations:
        iterations.append(_Iterations())
        return iterations[-1]

    llm = AsyncLLM.from_engine_args(arguments, stat_loggers=[listen])
    block_size = llm.vllm_config.cache_config.block_size
    if block_size != order.block_size:
        llm.shutdown()
        raise FailedPreconditionError(
            f"vLLM computes '{order.model}' with blocks of {block_size} tokens, and the plan has {order.block_size}.",
            hint=f"Give --block-size {block_size}.",
            field="block_size",
        )

    def start(*, version: str, weight_bytes: int) -> VllmEngine:
        engine = VllmEngine(
            order,
            spec,
            llm=llm,
            feed=feed,
            directory=directory,
            version=version,
            weight_bytes=weight_bytes,
            queue_policy=queue_policy,
        )
        for each in iterations:
            each.listener = engine.note_iteration
        return engine

    return start


def _arguments(order: LoadOrder, spec: ModelSpec, *, feed: BlockFeed, queue_policy: QueuePolicy) -> AsyncEngineArgs:
    """The user's own arguments, and over them what the plan has decided. vLLM keeps a block for itself, and a block is
    one of all layers, whatever they attend to."""
    parser = AsyncEngineArgs.add_cli_args(_Parser())
    arguments = parser.parse_args(shlex.split(order.engine_args))
    num_blocks = order.num_blocks + 1
    rank_bytes_per_token = shard_kv_bytes_per_token(spec, shard_of(spec, order.parallel, rank=0))
    decided: dict[str, Any] = {
        "model": order.directory,
        "skip_tokenizer_init": True,
        "dtype": order.dtype or "auto",
        "max_model_len": order.max_model_len,
        "max_num_seqs": order.max_num_seqs,
        "max_num_batched_tokens": order.max_num_batched_tokens,
        "block_size": order.block_size,
        "num_gpu_blocks_override": num_blocks,
        "kv_cache_memory_bytes": num_blocks * order.block_size * rank_bytes_per_token,
        "tensor_parallel_size": order.parallel.tp,
        "distributed_executor_backend": "mp" if order.parallel.tp > 1 else None,
        "disable_hybrid_kv_cache_manager": True,
        "enable_prefix_caching": order.enable_prefix_cache,
        "kv_events_config": KVEventsConfig(enable_kv_cache_events=True, publisher="zmq", endpoint=feed.endpoint),
        "worker_extension_cls": _TETHER,
        "scheduling_policy": "fcfs" if queue_policy is QueuePolicy.FCFS else "priority",
        "generation_config": "vllm",
        "seed": 0,
        "disable_log_stats": True,
        "enable_logging_iteration_details": True,
        "enable_log_requests": False,
    }
    for name, value in decided.items():
        setattr(arguments, name, value)
    return AsyncEngineArgs.from_cli_args(arguments)
