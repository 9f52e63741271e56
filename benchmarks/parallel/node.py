"""One decode of a batch on a node of GPUs, by the planner's cost model: every sequence gets one token."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache

import numpy as np

from headway.core.cluster import Fabric, Hardware
from headway.core.links import UsualLinks
from headway.core.model import ModelFamily, ModelSpec, RopeSpec
from headway.core.parallel_config import SINGLE, ParallelConfig
from headway.core.shard import shard_kv_bytes_per_token, shard_of, shard_weight_bytes
from headway.planner.serving.cost import GroupCost, StageCost, StepCost, StepLoad, Terms, cost_of_group
from headway.planner.serving.device_roofline import NVLINK, PCIE_4, PCIE_5, Roofline, roofline_of

GIB = 1024**3
PYTHON_TABLE_ENTRY_S = 52e-9
"""Block tables as nested Python lists made into a tensor in every step, as vLLM did when the chapter was written: 51 to
59 ns an entry on one core, 2026-11-21."""
RUNTIME_BYTES = 1 * GIB
RESIDENCE_TOKENS = 256
"""An evicted sequence decodes that many tokens, once it is back, before it gives way again: an assumption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The GPUs of one machine.

    Attributes:
        memory_bytes: of one GPU.
        host_bytes_per_s: between one GPU and the host's memory, each way.
    """

    name: str
    num_gpus: int
    memory_bytes: int
    roofline: Roofline
    fabric: Fabric
    host_bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Decode:
    """The cost of a decode in which every sequence of a batch got one token.

    Attributes:
        cost: seconds of the slowest group; swapping counts as overhead.
        swapped_share: of the tokens of that group, those that do not fit its memory.
    """

    num_tokens: int
    cost: StepCost
    swapped_share: float

    @property
    def tokens_per_s(self) -> float:
        return self.num_tokens / self.cost.total_s


def gpu(name: str, *, memory_bytes: int = 0) -> Roofline:
    """From the planner's catalogue, with the chapter's tables and half a usual step's overhead, for one layer."""
    hardware = Hardware(device="cuda", name=name, num_threads=1, memory_bytes=memory_bytes)
    return replace(roofline_of(hardware), table_entry_s=PYTHON_TABLE_ENTRY_S, step_overhead_s=1e-3)


A5000_NODE = Node(
    name="4 x RTX A5000",
    num_gpus=4,
    memory_bytes=24 * GIB,
    roofline=gpu("NVIDIA RTX A5000"),
    fabric=PCIE_4,
    host_bytes_per_s=PCIE_4.bytes_per_s,
)
H200_NODE = Node(
    name="8 x H200",
    num_gpus=8,
    memory_bytes=141 * 10**9,
    roofline=gpu("NVIDIA H200"),
    fabric=NVLINK,
    host_bytes_per_s=PCIE_5.bytes_per_s,
)


def llama(*, hidden_size: int, num_heads: int, num_kv_heads: int, intermediate_size: int, num_layers: int) -> ModelSpec:
    """A Llama in bfloat16, for the costs of its layers."""
    return ModelSpec(
        family=ModelFamily.LLAMA,
        architecture="LlamaForCausalLM",
        vocab_size=32_000,
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=hidden_size // num_heads,
        intermediate_size=intermediate_size,
        max_position=1 << 20,
        dtype="bfloat16",
        activation="silu",
        norm_eps=1e-5,
        rope=RopeSpec(theta=1e4, rotary_dim=hidden_size // num_heads),
    )


LLAMA_7B = llama(hidden_size=4096, num_heads=32, num_kv_heads=32, intermediate_size=11_008, num_layers=32)
LLAMA_70B = llama(hidden_size=8192, num_heads=64, num_kv_heads=8, intermediate_size=28_672, num_layers=80)


def layouts_on(node: Node) -> dict[str, ParallelConfig]:
    """The layouts on a node by name; in dp each GPU is a group of its own."""
    num_gpus = node.num_gpus
    return {
        "dp": SINGLE,
        "tp": ParallelConfig(tp=num_gpus),
        "cp": ParallelConfig(cp=num_gpus),
        "cp, split weights": ParallelConfig(cp=num_gpus, cp_ffn="tensor"),
    }


def layer_of(spec: ModelSpec) -> ModelSpec:
    """The spec of one layer of a model."""
    return replace(spec, num_layers=1)


@cache
def layer_cost(spec: ModelSpec, parallel: ParallelConfig, node: Node) -> GroupCost:
    """Cost of one layer without embedding and head, with the overhead of a whole step: two layers less one."""
    one, two = (
        cost_of_group(
            replace(spec, num_layers=num_layers), parallel, roofline=node.roofline, links=UsualLinks(fabric=node.fabric)
        ).stages[0]
        for num_layers in (1, 2)
    )
    stage = StageCost(
        compute=_less(two.compute, one.compute),
        communication=_less(two.communication, one.communication),
        overhead=one.overhead,
    )
    return GroupCost(stages=(stage,), head=StageCost(compute=Terms(), communication=Terms(), overhead=Terms()))


@cache
def capacity_tokens(spec: ModelSpec, parallel: ParallelConfig, node: Node) -> float:
    """Number of tokens whose keys and values of one layer a group holds beside the layer's weights."""
    two, one = (shard_of(replace(spec, num_layers=num), parallel, rank=0) for num in (2, 1))
    weight_bytes = shard_weight_bytes(replace(spec, num_layers=2), two) - shard_weight_bytes(layer_of(spec), one)
    return parallel.cp * (node.memory_bytes - RUNTIME_BYTES - weight_bytes) / rank_kv_bytes(spec, parallel)


def rank_kv_bytes(spec: ModelSpec, parallel: ParallelConfig) -> int:
    """Bytes of a token's keys and values that lie on a rank, in one layer."""
    return shard_kv_bytes_per_token(layer_of(spec), shard_of(layer_of(spec), replace(parallel, cp_ffn="data"), rank=0))


def decode(
    spec: ModelSpec, parallel: ParallelConfig, node: Node, lengths: Sequence[int], *, is_layer: bool = True
) -> Decode:
    """The batch is dealt out to the groups by number; the slowest of them sets the time.

    Where a group's tokens do not fit, its sequences take turns, and those that do not fit wander between GPU and host.

    Args:
        lengths: of the batch's sequences, in tokens.
        is_layer: of one layer; else of the whole model, whose capacity is not looked at.
    """
    if is_layer:
        cost, capacity = layer_cost(spec, parallel, node), capacity_tokens(spec, parallel, node)
    else:
        cost = cost_of_group(spec, parallel, roofline=node.roofline, links=UsualLinks(fabric=node.fabric))
        capacity = float("inf")
    num_groups = node.num_gpus // parallel.num_ranks
    wander_s = 2 * rank_kv_bytes(spec, parallel) / parallel.cp / node.host_bytes_per_s / RESIDENCE_TOKENS
    slowest, swapped_share = StepCost(), 0.0
    for group in range(num_groups):
        own = lengths[group::num_groups]
        num_tokens = sum(own)
        num_turns = max(1.0, num_tokens / capacity)
        load = StepLoad(num_decodes=len(own) / num_turns, context_tokens=num_tokens / num_turns)
        excess = max(0.0, num_tokens - capacity)
        total = cost.turn(load).times(num_turns) + StepCost(overhead_s=excess * wander_s)
        if total.total_s > slowest.total_s:
            slowest, swapped_share = total, excess / num_tokens
    return Decode(num_tokens=len(lengths), cost=slowest, swapped_share=swapped_share)


def draw_lengths(num_sequences: int, *, mean: int, sigma: float, seed: int, prefix: int = 0) -> list[int]:
    """Lognormal around `mean` tokens, `sigma` the standard deviation of their logarithms, behind `prefix` tokens."""
    generator = np.random.default_rng(seed)
    drawn = generator.lognormal(np.log(mean) - sigma * sigma / 2, sigma, num_sequences)
    return [prefix + max(1, round(length)) for length in drawn.tolist()]


def _less(first: Terms, second: Terms) -> Terms:
    return Terms(**{field.name: getattr(first, field.name) - getattr(second, field.name) for field in fields(Terms)})
