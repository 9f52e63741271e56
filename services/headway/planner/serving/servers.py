"""Models that servers of another engine serve: what those say of themselves takes the place of choices. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from headway.core.cluster import PlanWorker
from headway.core.engine_server import ServerFacts
from headway.core.errors import FailedPreconditionError
from headway.core.plan.serving import EngineLimits, ModelDeployment


def workers_for(model: ModelDeployment, workers: Sequence[PlanWorker]) -> tuple[PlanWorker, ...]:
    """Those that stand in for its servers."""
    return tuple(
        worker
        for worker in workers
        if worker.hardware.server is not None and worker.hardware.server.model == model.name
    )


def model_of_servers(model: ModelDeployment, workers: Sequence[PlanWorker]) -> ModelDeployment:
    """The model with sequences no longer than each server takes.

    Raises:
        FailedPreconditionError: longer ones are asked for.
    """
    servers = _servers(workers)
    if not servers:
        return model
    shortest = min(servers, key=lambda server: server.max_model_len)
    longest = model.max_model_len or model.spec.max_position
    if model.max_model_len is not None and model.max_model_len > shortest.max_model_len:
        raise FailedPreconditionError(
            f"max_model_len of '{model.name}' is {model.max_model_len}, and the server at {shortest.url} takes "
            f"{shortest.max_model_len} tokens.",
            hint="Lower it, or start the server with more.",
            field="max_model_len",
        )
    return replace(model, max_model_len=min(longest, shortest.max_model_len))


def limits_of_servers(model: ModelDeployment, limits: EngineLimits, workers: Sequence[PlanWorker]) -> EngineLimits:
    """The limits with the blocks that each server has.

    Raises:
        FailedPreconditionError: blocks of another size are asked for, or the servers' sizes differ.
    """
    servers = _servers(workers)
    if not servers:
        return limits
    sizes = {server.block_size for server in servers}
    if len(sizes) > 1:
        raise FailedPreconditionError(
            f"The servers of '{model.name}' have blocks of {' and '.join(map(str, sorted(sizes)))} tokens.",
            hint="Start all with the same --block-size.",
            field="engine",
        )
    (block_size,) = sizes
    num_blocks = min(server.num_blocks for server in servers)
    return replace(
        limits,
        block_size=block_size,
        kv_cache_bytes=num_blocks * block_size * model.spec.kv_bytes_per_token,
        enable_prefix_cache=all(server.has_prefix_cache for server in servers),
    )


def _servers(workers: Sequence[PlanWorker]) -> list[ServerFacts]:
    return [worker.hardware.server for worker in workers if worker.hardware.server is not None]
