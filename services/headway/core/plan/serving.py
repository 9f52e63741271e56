"""Serving plans: which worker serves which model, with how much memory, and what that should give."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from headway.core.adapter import Adapter
from headway.core.cluster import PlanWorker
from headway.core.engine_kind import EngineKind
from headway.core.latency import LatencyModel
from headway.core.links import LinkFigure
from headway.core.model import ModelSpec
from headway.core.parallel_config import SINGLE, ParallelConfig
from headway.core.slo import Slo

DEFAULT_IDLE_S = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDeployment:
    """A model as a user wants it served.

    Attributes:
        name: under which clients ask for it.
        directory: of the checkpoint.
        max_model_len: longest sequence in tokens; None leaves it to the planner.
        slo: the default objective of its requests.
        profile: the model whose imported stage profiles say what it takes, on emulated devices; empty for one that is
            computed, or estimated from its shape.
        generation_config: the directory of its `generation_config.json`, 'none' to do without; empty for the
            checkpoint's own.
        engine: what computes it.
        engine_args: the engine's own flags, as on a command line, besides what the plan decides.
        adapters: that are served beside it.
        backend: what runs an encoder's layers, by name or the fastest; empty for Headway's own kernels.
        tool_parser, reasoning_parser: how its tool calls and its reasoning are read; empty as its chat template shows.
        min_replicas, max_replicas: how many groups serve it where the planner chooses; None for one at least, and for
            as many as there are. An applied placement says so itself. With 0 it is unloaded while nobody asks for it.
        idle_s: for how long nobody has asked for it when it is unloaded; None for `DEFAULT_IDLE_S`.
        parallel: of each of its groups; None where the stack's limits or the planner say so. Models for which it
            differs share no worker.
        pools: whose workers may serve it; empty for all.
        prefill_workers, decode_workers: that compute its prompts, and that go on with its sequences. Both or neither.
    """

    name: str
    directory: str
    spec: ModelSpec
    max_model_len: int | None = None
    slo: Slo = field(default_factory=Slo)
    profile: str = ""
    generation_config: str = ""
    engine: EngineKind = EngineKind.HEADWAY
    engine_args: str = ""
    adapters: tuple[Adapter, ...] = ()
    backend: str = ""
    tool_parser: str = ""
    reasoning_parser: str = ""
    min_replicas: int | None = None
    max_replicas: int | None = None
    idle_s: float | None = None
    parallel: ParallelConfig | None = None
    pools: tuple[str, ...] = ()
    prefill_workers: int | None = None
    decode_workers: int | None = None

    @property
    def has_roles(self) -> bool:
        """Whether its prompts are computed by other workers than those that go on with them."""
        return self.prefill_workers is not None or self.decode_workers is not None

    @property
    def may_sleep(self) -> bool:
        """Whether it may be unloaded while nobody asks for it."""
        return self.min_replicas == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """The limits that an operator sets for every engine; None is the planner's choice.

    Attributes:
        max_num_prefill_tokens: the most prefill tokens of one step.
        host_cache_bytes: host memory of each worker for swapped sequences and evicted prefixes.
        preemption: 'auto', 'recompute' or 'swap'.
        num_draft_tokens: draft tokens per step of speculative decoding; 0 turns it off.
        tp, pp, cp, cp_ffn, stage_layers: axes of every group; see `ParallelConfig`. Where only the stages' layers are
            set, there are as many stages. Empty layers are the planner's choice.
        prefill_workers, decode_workers: that compute the model's prompts, and that go on with its sequences. Both or
            neither.
    """

    block_size: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    kv_cache_bytes: int | None = None
    enable_prefix_cache: bool | None = None
    max_num_prefill_tokens: int | None = None
    host_cache_bytes: int | None = None
    preemption: str | None = None
    num_draft_tokens: int | None = None
    tp: int | None = None
    pp: int | None = None
    cp: int | None = None
    cp_ffn: str | None = None
    stage_layers: tuple[int, ...] = ()
    prefill_workers: int | None = None
    decode_workers: int | None = None

    @property
    def is_disaggregated(self) -> bool:
        """Whether prompts are computed by other workers than those that go on with them."""
        return self.prefill_workers is not None or self.decode_workers is not None

    @property
    def parallel(self) -> ParallelConfig:
        """The layout of every group."""
        axes: dict[str, Any] = {name: getattr(self, name) for name in ("tp", "pp", "cp", "cp_ffn", "stage_layers")}
        if self.pp is None and self.stage_layers:
            axes["pp"] = len(self.stage_layers)
        return ParallelConfig(**{name: size for name, size in axes.items() if size is not None})


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Expected latencies in seconds.

    Attributes:
        ttft_s: a prompt of 512 tokens (or the longest, if shorter) on an idle group.
        tpot_s: with one running sequence of 512 tokens of context.
        tpot_loaded_s: with as many as max_num_seqs and the blocks allow.
        output_tokens_per_s: at that load.
        latency: the latency model of steps that all figures rest on.
        profile_id: of the measured profile; empty when estimated.
        input_tokens_per_s: of a model that does not generate, in full steps; the other rates and tpot_s are 0 then, and
            ttft_s is the time to its answer.
    """

    ttft_s: float
    tpot_s: float
    tpot_loaded_s: float
    output_tokens_per_s: float
    latency: LatencyModel
    profile_id: str = ""
    input_tokens_per_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankShare:
    """The part of a model that one worker of a group holds.

    Attributes:
        reserved_bytes: the bytes for activations, workspace and the runtime itself.
        first_layer, num_layers: the layers of its stage.
    """

    worker_id: str
    weight_bytes: int
    kv_cache_bytes: int
    reserved_bytes: int
    host_cache_bytes: int = 0
    first_layer: int = 0
    num_layers: int = 0


class Role(StrEnum):
    """The role of a group for its model."""

    BOTH = ""
    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One model's replica on one group.

    Several models may share a group: their assignments name the same workers in the same order and the same axes.

    Attributes:
        worker_id: the id of the group's leader, rank 0. The bytes are its own.
        weight_bytes: the bytes of the weights as the worker holds them.
        kv_cache_bytes: the worker's part of num_blocks blocks of block_size tokens.
        reserved_bytes: activations, workspace and, once on each worker, the runtime itself.
        max_num_prefill_tokens: the most prefill tokens of one step; None for all that the decodes leave.
        num_blocks: of all the group's cache shards together; a worker has the blocks of its own, and of each the part
            of its layers and heads.
        host_cache_bytes: the worker's part of num_host_blocks blocks, as many on each cache shard, in host memory.
        preemption: how sequences are preempted: 'auto', 'recompute' or 'swap'.
        num_draft_tokens: draft tokens per step of speculative decoding; 0 turns it off.
        ranks: the shares of the group's workers, by rank; of a lone worker those of its devices, where it has several,
            else empty.
        role: whether the group computes prompts for others to go on with, or goes on with theirs.
        stage_latencies: what a step takes in each stage of the pipeline, where the group's devices are emulated; else
            empty.
        links: the links between the group's workers that estimates use; empty for a lone worker.
    """

    group_id: str
    worker_id: str
    model: str
    weight_bytes: int
    kv_cache_bytes: int
    reserved_bytes: int
    num_blocks: int
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    enable_prefix_cache: bool
    prediction: Prediction
    max_num_prefill_tokens: int | None = None
    host_cache_bytes: int = 0
    num_host_blocks: int = 0
    preemption: str = "auto"
    num_draft_tokens: int = 0
    parallel: ParallelConfig = SINGLE
    ranks: tuple[RankShare, ...] = ()
    role: Role = Role.BOTH
    stage_latencies: tuple[LatencyModel, ...] = ()
    links: tuple[LinkFigure, ...] = ()

    @property
    def shares(self) -> tuple["Assignment | RankShare", ...]:
        """Returns what each worker holds, by rank; for a lone worker that is the assignment itself."""
        return self.ranks or (self,)

    @property
    def worker_ids(self) -> tuple[str, ...]:
        """The group's workers, by rank."""
        return tuple(dict.fromkeys(share.worker_id for share in self.shares))

    @property
    def has_mates(self) -> bool:
        """Whether several workers share it."""
        return len(self.worker_ids) > 1

    @property
    def pipeline_latencies(self) -> tuple[LatencyModel, ...]:
        """The latency model of each pipeline stage: as given, else parts of the whole's by the stages' layers."""
        if self.stage_latencies:
            return self.stage_latencies
        layers = {self.parallel.place(rank).stage: share.num_layers for rank, share in enumerate(self.ranks)}
        total = sum(layers.values())
        if not total:
            return (self.prediction.latency,)
        return tuple(self.prediction.latency.part(layers[stage] / total) for stage in sorted(layers))


class Verdict(StrEnum):
    """The verdict on a layout; the first three are chosen."""

    REPLICAS = "replicas"
    BEST = "best"
    KEPT = "kept"
    WORSE = "worse"
    BETTER = "better"
    MISSES = "misses"
    UNFIT = "unfit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """A layout that the planner weighed: estimates, of the model that is worst served; 0 where it does not fit.

    Attributes:
        num_groups: that serve.
        tpot_s: with one running sequence.
        output_tokens_per_s: of all groups, within the objective where there is one.
        longest_len: tokens of the longest sequence that a group's blocks hold.
    """

    parallel: ParallelConfig
    verdict: Verdict
    num_groups: int = 0
    tpot_s: float = 0.0
    output_tokens_per_s: float = 0.0
    longest_len: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingPlan:
    """The artefact that the controller makes true. `plan_id` is unique and sorts by time.

    Attributes:
        alternatives: the layouts that were weighed, the chosen one first; empty where there was no choice.
        placement_id: of the placement that it makes so; empty where the planner chose itself.
    """

    plan_id: str
    created_at_s: float
    models: tuple[ModelDeployment, ...]
    workers: tuple[PlanWorker, ...]
    assignments: tuple[Assignment, ...]
    alternatives: tuple[Alternative, ...] = ()
    placement_id: str = ""

    @property
    def is_emulated(self) -> bool:
        """Whether any of its workers only takes a device's time."""
        return any(worker.hardware.is_emulated for worker in self.workers)

    @property
    def emulated_devices(self) -> str:
        """The emulated devices of the plan's workers, as '16 x V100-16'; '' where there are none."""
        names = Counter(worker.hardware.name for worker in self.workers if worker.hardware.is_emulated)
        return ", ".join(f"{count} x {name}" for name, count in names.items())

    @property
    def asleep(self) -> frozenset[str]:
        """The models that no group is to have, until they are asked for."""
        return frozenset(model.name for model in self.models) - {each.model for each in self.assignments}

    def model(self, name: str) -> ModelDeployment | None:
        return next((model for model in self.models if model.name == name), None)

    def worker(self, worker_id: str) -> PlanWorker | None:
        return next((worker for worker in self.workers if worker.worker_id == worker_id), None)

    def assignments_of(self, worker_id: str) -> tuple[Assignment, ...]:
        """Returns the assignments of the group that a worker is in, whatever its rank: one for each of its models."""
        return tuple(a for a in self.assignments if worker_id in a.worker_ids)

    def assignment(self, worker_id: str, model: str) -> Assignment | None:
        """Returns the assignment of a model to the group that a worker is part of."""
        return next((a for a in self.assignments_of(worker_id) if a.model == model), None)


def plan_id_at(created_at_s: float, *, nonce: str) -> str:
    """An id that sorts by time; `nonce` keeps apart two plans of one millisecond."""
    moment = datetime.fromtimestamp(created_at_s, UTC)
    return f"plan-{moment:%Y%m%dT%H%M%S}.{moment.microsecond // 1000:03d}-{nonce}"
