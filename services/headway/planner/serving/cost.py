"""What a step of a group costs, by what it is spent on. Pure.

Each part is linear in the five features of `LatencyModel`. Products run at the device's usual FLOP/s and weights are
read once a step; that the two are added, and not the larger of them taken, is the efficiency that falls with few rows:
a product of r rows takes (1 + r0 / r) of its least time, where r0 rows take as long to compute as the weights to read.
Attention costs decodes the reading of their keys and values, and prefills its products. Every rank handles the block
tables of all sequences, in a cache-parallel group those of its own blocks only.
"""

from dataclasses import dataclass, fields, replace

from headway.core.cluster import Fabric
from headway.core.mesh import ParallelConfig, Place
from headway.core.model import ModelSpec
from headway.core.shard import shard_kv_bytes_per_token, shard_of, shard_weight_bytes
from headway.planner.serving.catalogue import Roofline
from headway.planner.serving.exchange import exchanges_of

_FLOAT32_BYTES = 4
_LAUNCH_SHARE = 0.5
"""Of a step's overhead, what goes with the number of layers that a rank launches; the rest is scheduling."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLoad:
    """What a step computes.

    Attributes:
        context_tokens: of all decodes together.
        prefill_context: tokens before the prefill's.
    """

    num_decodes: float = 0.0
    context_tokens: float = 0.0
    prefill_tokens: float = 0.0
    prefill_context: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Seconds of a step, and for each prefilled token, each pair of one with a token before it, each decode, and each
    token of its context."""

    base_s: float = 0.0
    token_s: float = 0.0
    pair_s: float = 0.0
    decode_s: float = 0.0
    context_s: float = 0.0

    def __add__(self, other: "Terms") -> "Terms":
        return Terms(**{field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(Terms)})

    def seconds(self, load: StepLoad) -> float:
        num_pairs = load.prefill_tokens * (load.prefill_context + load.prefill_tokens / 2)
        return (
            self.base_s
            + self.token_s * load.prefill_tokens
            + self.pair_s * num_pairs
            + self.decode_s * load.num_decodes
            + self.context_s * load.context_tokens
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """Seconds, by what they are spent on."""

    compute_s: float = 0.0
    communication_s: float = 0.0
    overhead_s: float = 0.0

    @property
    def total_s(self) -> float:
        return self.compute_s + self.communication_s + self.overhead_s

    def __add__(self, other: "StepCost") -> "StepCost":
        return StepCost(
            compute_s=self.compute_s + other.compute_s,
            communication_s=self.communication_s + other.communication_s,
            overhead_s=self.overhead_s + other.overhead_s,
        )

    def times(self, factor: float) -> "StepCost":
        return StepCost(
            compute_s=self.compute_s * factor,
            communication_s=self.communication_s * factor,
            overhead_s=self.overhead_s * factor,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCost:
    """Of the slowest rank of one stage."""

    compute: Terms
    communication: Terms
    overhead: Terms

    @property
    def total(self) -> Terms:
        return self.compute + self.communication + self.overhead

    def step(self, load: StepLoad) -> StepCost:
        return StepCost(
            compute_s=self.compute.seconds(load),
            communication_s=self.communication.seconds(load),
            overhead_s=self.overhead.seconds(load),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCost:
    """Of one group; `stages` of its pipeline, the first first."""

    stages: tuple[StageCost, ...]

    def step(self, load: StepLoad) -> StepCost:
        """A batch's way through all stages, alone."""
        return sum((stage.step(load) for stage in self.stages), start=StepCost())

    def turn(self, load: StepLoad) -> StepCost:
        """Until every sequence of `load` had its token, where the sequences are split into a batch for each stage and
        all are under way: the slowest stage sets the pace."""
        num_stages = len(self.stages)
        share = replace(load, **{field.name: getattr(load, field.name) / num_stages for field in fields(StepLoad)})
        slowest = max((stage.step(share) for stage in self.stages), key=lambda cost: cost.total_s)
        return slowest.times(num_stages)


def cost_of_group(
    spec: ModelSpec, parallel: ParallelConfig, *, roofline: Roofline, fabric: Fabric, block_size: int = 16
) -> GroupCost:
    """What steps cost a group of equal devices.

    Args:
        roofline: of every device.
        fabric: between any two of the group.
        block_size: tokens of a KV block.
    """
    return GroupCost(
        stages=tuple(
            StageCost(
                compute=_compute(spec, parallel, stage, roofline),
                communication=_communicate(spec, parallel, stage, fabric),
                overhead=_manage(spec, parallel, stage, roofline, block_size),
            )
            for stage in range(parallel.pp)
        )
    )


def _compute(spec: ModelSpec, parallel: ParallelConfig, stage: int, roofline: Roofline) -> Terms:
    """In an encoder, which decodes nothing, each token sees all others of its sequence: twice a decoder's pairs."""
    rank, num_parts = parallel.rank_of(Place(stage, 0, 0)), parallel.tp * parallel.cp  # first parts are the largest
    in_attention = replace(parallel, cp_ffn="data")  # a rank's part of the cache has all heads that it sees
    shard = shard_of(spec, in_attention, rank=rank)
    is_float32 = spec.dtype_bytes == _FLOAT32_BYTES or (spec.quantization is not None and roofline.widens_quantized)
    flops = roofline.flops_in(is_float32=is_float32)
    is_encoder = spec.encoder is not None
    head_flops = 0 if is_encoder else 2 * spec.vocab_size * (spec.embedding_dim or spec.hidden_size)
    layer_flops = (spec.flops_per_token - head_flops) * len(shard.layers) / spec.num_layers
    num_heads = len(shard.query_heads)
    pair_flops = 4 * len(shard.layers) * num_heads * spec.head_dim / parallel.cp  # q.k and p.v
    weight_bytes = shard_weight_bytes(spec, shard_of(spec, parallel, rank=rank))
    kv_bytes = shard_kv_bytes_per_token(spec, shard) / parallel.cp
    partial_bytes = 0  # written by each cache shard, and read where they are merged
    if parallel.cp > 1:
        partial_bytes = 2 * len(shard.layers) * num_heads * (spec.head_dim + 1) * _FLOAT32_BYTES
    token_s = layer_flops / num_parts / flops + partial_bytes / roofline.bytes_per_s
    head_s = head_flops * shard.is_last / num_parts / flops
    return Terms(
        base_s=weight_bytes / roofline.bytes_per_s,
        token_s=token_s,
        pair_s=(2 if is_encoder else 1) * pair_flops / flops,
        decode_s=0.0 if is_encoder else token_s + head_s,
        context_s=kv_bytes / roofline.bytes_per_s,
    )


def _communicate(spec: ModelSpec, parallel: ParallelConfig, stage: int, fabric: Fabric) -> Terms:
    exchanges = exchanges_of(spec, parallel, stage=stage)
    token_s = sum(exchange.wire_s(exchange.token_bytes, fabric) for exchange in exchanges)
    wanted_s = sum(exchange.wire_s(exchange.wanted_bytes, fabric) for exchange in exchanges)
    return Terms(
        base_s=sum(exchange.base_s(fabric) for exchange in exchanges), token_s=token_s, decode_s=token_s + wanted_s
    )


def _manage(spec: ModelSpec, parallel: ParallelConfig, stage: int, roofline: Roofline, block_size: int) -> Terms:
    shard = shard_of(spec, parallel, rank=parallel.rank_of(Place(stage, 0, 0)))
    launched = 1 - _LAUNCH_SHARE + _LAUNCH_SHARE * len(shard.layers) / spec.num_layers
    decodes = spec.encoder is None
    return Terms(
        base_s=launched * roofline.step_overhead_s,
        decode_s=roofline.sequence_overhead_s * (shard.is_last and decodes),  # the leader schedules and samples
        context_s=roofline.table_entry_s / block_size / parallel.cp * decodes,
    )
