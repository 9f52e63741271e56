"""What a worker is told to load: the controller fills it from a plan, the worker reads it."""

import math
from dataclasses import dataclass, field, replace

from headway.core.engine_kind import EngineKind
from headway.core.errors import InvalidArgumentError
from headway.core.latency import LatencyModel
from headway.core.parallel_config import SINGLE, ParallelConfig

DEFAULT_COLLECTIVE_TIMEOUT_S = 15.0
DEFAULT_STEP_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOrder:
    """One model on the workers of a group; the fields are those of `LoadModelRequest`.

    Orders are equal where the group comes to serve the same in the same way. So what differs between its ranks, or
    between two plans that want the same, does not count.

    Attributes:
        dtype, quantization: empty for the checkpoint's own.
        num_blocks, num_host_blocks: of all the group's cache shards together, which have equally many.
        preemption: "auto", "recompute" or "swap".
        engine, engine_args: what computes it, and its own flags besides what is said here.
        backend: what runs an encoder's layers; empty for Headway's own kernels.
        worker_ids: the group's, by rank; rank 0 leads. Empty where a worker alone is told so by hand.
        stage_latencies: what a step takes in each stage of the pipeline, on emulated devices; empty on real ones.
        memory_bytes: that it takes on each worker, by rank; of several devices the most on one. The controller's own:
            no worker is told.
        plan_id: of the plan that it comes from.
        rank: of the worker that is told.
        rendezvous: where the ranks meet, "host:port/number of the model/epoch"; empty for the leader, which opens it.
        collective_timeout_s: after which a rank that the others wait for counts as dead.
        step_timeout_s: after which a step that the engine is in is taken for one that never ends.
    """

    model: str
    directory: str
    dtype: str
    num_blocks: int
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    enable_prefix_cache: bool
    max_num_prefill_tokens: int | None = None
    num_host_blocks: int = 0
    preemption: str = "auto"
    num_draft_tokens: int = 0
    quantization: str = ""
    generation_config: str = ""
    engine: EngineKind = EngineKind.HEADWAY
    engine_args: str = ""
    backend: str = ""
    parallel: ParallelConfig = SINGLE
    worker_ids: tuple[str, ...] = ()
    group_id: str = ""
    stage_latencies: tuple[LatencyModel, ...] = ()
    memory_bytes: tuple[int, ...] = field(default=(), compare=False)
    plan_id: str = field(default="", compare=False)
    rank: int = field(default=0, compare=False)
    rendezvous: str = field(default="", compare=False)
    collective_timeout_s: float = field(default=DEFAULT_COLLECTIVE_TIMEOUT_S, compare=False)
    step_timeout_s: float = field(default=DEFAULT_STEP_TIMEOUT_S, compare=False)

    @property
    def leader(self) -> str:
        return self.worker_ids[0]

    def continues(self, other: "LoadOrder") -> bool:
        """Whether it answers as the other does, so that a request can go from that to this."""
        mine, theirs = (
            (each.model, each.directory, each.dtype, each.quantization, each.generation_config, each.engine)
            for each in (self, other)
        )
        return mine == theirs

    @property
    def is_in_group(self) -> bool:
        """Whether several workers do it together. What shares layers with vLLM are devices of one worker."""
        return self.parallel.num_ranks > (self.parallel.tp if self.engine is EngineKind.VLLM else 1)

    def shares_group_of(self, other: "LoadOrder") -> bool:
        """Whether both are for the same workers, in the same order and along the same axes; the layers of stages are a
        model's own."""
        if not (self.is_in_group or other.is_in_group):
            return True  # for the one worker
        mine, theirs = replace(self.parallel, stage_layers=()), replace(other.parallel, stage_layers=())
        return (mine, self.rank, self.worker_ids) == (theirs, other.rank, other.worker_ids)

    @property
    def num_own_blocks(self) -> int:
        """The number of KV blocks in this worker's cache shard."""
        return self.num_blocks // self.parallel.cp

    @property
    def num_own_host_blocks(self) -> int:
        return self.num_host_blocks // self.parallel.cp

    @property
    def shard_owners(self) -> tuple[tuple[str, ...], ...]:
        """The workers that have each cache shard, by rank; nobody by name where the worker is alone."""
        owners: list[list[str]] = [[] for _ in range(self.parallel.cp)]
        for rank, worker_id in enumerate(self.worker_ids):
            owners[self.parallel.place(rank).shard].append(worker_id)
        return tuple(map(tuple, owners))

    @property
    def group_epoch(self) -> str:
        """The id of this run of the group, the same on all its ranks; empty for a lone worker."""
        return self.rendezvous.rpartition("/")[2]


def check_load_order(order: LoadOrder) -> None:
    """Raises InvalidArgumentError naming the first field that no worker of a group could have been sent."""
    parallel = order.parallel
    for axis, size in (("tp", parallel.tp), ("pp", parallel.pp), ("cp", parallel.cp)):
        if size < 1:
            raise InvalidArgumentError(f"{axis} is {size}, it must be at least 1.", field=f"parallel.{axis}")
    if order.is_in_group and len(order.worker_ids) != parallel.num_ranks:
        raise InvalidArgumentError(
            f"A group of {parallel.num_ranks} ranks needs as many workers, not {len(order.worker_ids)}.",
            hint="Name the workers by rank.",
            field="worker_ids",
        )
    if not 0 <= order.rank < parallel.num_ranks:
        raise InvalidArgumentError(f"There is no rank {order.rank} among {parallel.num_ranks}.", field="rank")
    for name in ("num_blocks", "num_host_blocks"):
        if getattr(order, name) < 0:
            raise InvalidArgumentError(f"{name} is {getattr(order, name)}, it must not be negative.", field=name)
    for name in ("collective_timeout_s", "step_timeout_s"):
        if not 0 < getattr(order, name) < math.inf:
            raise InvalidArgumentError(f"{name} is {getattr(order, name)}, it must be above 0 and finite.", field=name)
