"""The order to load a model, as a worker gets it."""

from dataclasses import dataclass, replace
from pathlib import Path

from headway.core.latency import LatencyModel
from headway.core.parallel_config import SINGLE, ParallelConfig
from headway.engine.config import PreemptionMode

DEFAULT_COLLECTIVE_TIMEOUT_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOrder:
    """A model for this worker to load and serve, with its limits: one assignment of a plan.

    Attributes:
        num_blocks, num_host_blocks: the KV blocks of all the group's cache shards together; each shard has equally
            many.
        parallel, rank: the group's parallel config, and the worker's rank in the group; rank 0 leads.
        worker_ids: the group's workers, by rank.
        rendezvous: where the ranks meet, "host:port/number of the model/epoch"; empty for the leader, which opens it.
        stage_latencies: the latency model of each pipeline stage, on emulated devices; empty on real ones.
        collective_timeout_s: seconds after which a rank that the others wait for counts as dead.
    """

    plan_id: str
    model: str
    directory: Path
    dtype: str
    num_blocks: int
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    enable_prefix_cache: bool
    max_num_prefill_tokens: int | None = None
    num_host_blocks: int = 0
    preemption: PreemptionMode = "auto"
    num_draft_tokens: int = 0
    quantization: str = ""
    generation_config: str = ""
    parallel: ParallelConfig = SINGLE
    rank: int = 0
    worker_ids: tuple[str, ...] = ()
    rendezvous: str = ""
    group_id: str = ""
    collective_timeout_s: float = DEFAULT_COLLECTIVE_TIMEOUT_S
    stage_latencies: tuple[LatencyModel, ...] = ()

    @property
    def is_in_group(self) -> bool:
        return self.parallel.num_ranks > 1

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
