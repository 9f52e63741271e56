"""The cost of a group's step, by what it is spent on. Pure.

Each part is linear in the five features of `LatencyModel`. Products run at the device's usual FLOP/s and weights are
read once a step; that the two are added, and not the larger of them taken, is the efficiency that falls with few rows:
a product of r rows takes (1 + r0 / r) of its least time, where r0 rows take as long to compute as the weights to read.
Attention costs decodes the reading of their keys and values, and prefills its products. Every rank handles the block
tables of all sequences, in a cache-parallel group those of its own blocks only.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from headway.core.links import Links
from headway.core.model import ModelSpec
from headway.core.parallel_config import ParallelConfig, Place
from headway.core.shard import head_weight_bytes, shard_kv_bytes_per_token, shard_of, shard_weight_bytes
from headway.planner.serving.collectives import StepCollective, collectives_of, head_collectives_of
from headway.planner.serving.device_roofline import Roofline

_FLOAT32_BYTES = 4
_LAUNCH_SHARE = 0.5
"""Of a step's overhead, what goes with the number of layers that a rank launches; the rest is scheduling."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLoad:
    """The load of one step: what it computes.

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
    """The cost of the slowest rank of one stage, or of the head, in which all stages take part at the same time."""

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
    """The cost of a step of one group.

    Attributes:
        stages: of its pipeline, the first first, for their layers.
        head: from hidden states to tokens. All stages compute logits together, and wait while the leader samples.
    """

    stages: tuple[StageCost, ...]
    head: StageCost

    def step(self, load: StepLoad) -> StepCost:
        """A batch's way through all stages, alone."""
        return sum((stage.step(load) for stage in self.stages), start=self.head.step(load))

    def turn(self, load: StepLoad) -> StepCost:
        """Until every sequence of `load` had its token, where the sequences are split into a batch for each stage and
        all are under way: the slowest stage sets the pace, and in between all meet for the head."""
        num_stages = len(self.stages)
        share = replace(load, **{field.name: getattr(load, field.name) / num_stages for field in fields(StepLoad)})
        slowest = max((stage.step(share) for stage in self.stages), key=lambda cost: cost.total_s)
        return (slowest + self.head.step(share)).times(num_stages)


def cost_of_group(
    spec: ModelSpec, parallel: ParallelConfig, *, roofline: Roofline, links: Links, block_size: int = 16
) -> GroupCost:
    """Returns what steps cost a group of equal devices.

    Args:
        roofline: of every device.
        links: between the workers of the group.
        block_size: tokens of a KV block.
    """
    return GroupCost(
        stages=tuple(
            StageCost(
                compute=_compute(spec, parallel, stage, roofline),
                communication=_communicate(collectives_of(spec, parallel, stage=stage), links),
                overhead=_manage(spec, parallel, stage, roofline, block_size),
            )
            for stage in range(parallel.pp)
        ),
        head=_head(spec, parallel, roofline, links),
    )


def _head(spec: ModelSpec, parallel: ParallelConfig, roofline: Roofline, links: Links) -> StageCost:
    """Returns the cost of the head at the leader, whose part is the largest, and which schedules and samples."""
    if spec.encoder is not None:
        return StageCost(compute=Terms(), communication=Terms(), overhead=Terms())
    num_parts = parallel.num_ranks
    weight_bytes = head_weight_bytes(spec, shard_of(spec, parallel, rank=0))
    return StageCost(
        compute=Terms(
            base_s=weight_bytes / roofline.bytes_per_s, decode_s=_head_flops(spec) / num_parts / _flops(spec, roofline)
        ),
        communication=_communicate(head_collectives_of(spec, parallel), links),
        overhead=Terms(decode_s=roofline.sequence_overhead_s),
    )


def _head_flops(spec: ModelSpec) -> int:
    """Returns the FLOPs of the head for one token."""
    return 0 if spec.encoder is not None else 2 * spec.vocab_size * (spec.embedding_dim or spec.hidden_size)


def _flops(spec: ModelSpec, roofline: Roofline) -> float:
    is_float32 = spec.dtype_bytes == _FLOAT32_BYTES or (spec.quantization is not None and roofline.widens_quantized)
    return roofline.flops_in(is_float32=is_float32)


def _compute(spec: ModelSpec, parallel: ParallelConfig, stage: int, roofline: Roofline) -> Terms:
    """In an encoder, which decodes nothing, each token sees all others of its sequence: twice a decoder's pairs."""
    rank, num_parts = parallel.rank_of(Place(stage, 0, 0)), parallel.tp * parallel.cp  # first parts are the largest
    in_attention = replace(parallel, cp_ffn="data")  # a rank's part of the cache has all heads that it sees
    shard = shard_of(spec, in_attention, rank=rank)
    flops, is_encoder = _flops(spec, roofline), spec.encoder is not None
    layer_flops = (spec.flops_per_token - _head_flops(spec)) * len(shard.layers) / spec.num_layers
    num_heads = len(shard.query_heads)
    pair_flops = 4 * len(shard.layers) * num_heads * spec.head_dim / parallel.cp  # q.k and p.v
    own = shard_of(spec, parallel, rank=rank)
    weight_bytes = shard_weight_bytes(spec, own) - (0 if is_encoder else head_weight_bytes(spec, own))
    kv_bytes = shard_kv_bytes_per_token(spec, shard) / parallel.cp
    partial_bytes = 0  # written by each cache shard, and read where they are merged
    if parallel.cp > 1:
        partial_bytes = 2 * len(shard.layers) * num_heads * (spec.head_dim + 1) * _FLOAT32_BYTES
    token_s = layer_flops / num_parts / flops + partial_bytes / roofline.bytes_per_s
    return Terms(
        base_s=weight_bytes / roofline.bytes_per_s,
        token_s=token_s,
        pair_s=(2 if is_encoder else 1) * pair_flops / flops,
        decode_s=0.0 if is_encoder else token_s,
        context_s=kv_bytes / roofline.bytes_per_s,
    )


def _communicate(collectives: Sequence[StepCollective], links: Links) -> Terms:
    token_s = sum(collective.wire_s(collective.token_bytes, links) for collective in collectives)
    wanted_s = sum(collective.wire_s(collective.wanted_bytes, links) for collective in collectives)
    return Terms(
        base_s=sum(collective.base_s(links) for collective in collectives), token_s=token_s, decode_s=token_s + wanted_s
    )


def _manage(spec: ModelSpec, parallel: ParallelConfig, stage: int, roofline: Roofline, block_size: int) -> Terms:
    shard = shard_of(spec, parallel, rank=parallel.rank_of(Place(stage, 0, 0)))
    launched = 1 - _LAUNCH_SHARE + _LAUNCH_SHARE * len(shard.layers) / spec.num_layers
    return Terms(
        base_s=launched * roofline.step_overhead_s,
        context_s=roofline.table_entry_s / block_size / parallel.cp * (spec.encoder is None),
    )
