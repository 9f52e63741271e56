"""Checks that what an assignment puts on a worker fits its memory."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from headway.core.cluster import Hardware
from headway.core.model import ModelFamily, ModelSpec
from headway.core.plan.serving import Assignment, RankShare

_BYTES_PER_NUMBER = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}


@dataclass(frozen=True, slots=True)
class RankPart:
    """The part of a model that one rank has: part `index` of `parts` of each of its layers.

    Attributes:
        first_layer, num_layers: counted in the whole model, also for a worker that serves alone.
        cached: the parts whose keys and values it has, of the tokens on its cache shard.
        head_index, head_parts: its part of the output head, which all stages share.
    """

    index: int
    parts: int
    first_layer: int
    num_layers: int
    cached: range
    head_index: int = 0
    head_parts: int = 1

    def of(self, total: int) -> int:
        """Number of this rank's out of `total` things; the first parts have one more where they don't come out even."""
        return total // self.parts + (self.index < total % self.parts)

    def head_rows_of(self, spec: ModelSpec) -> int:
        return replace(self, index=self.head_index, parts=self.head_parts).of(spec.vocab_size)

    def kv_heads_of(self, spec: ModelSpec) -> int:
        """Number of KV heads, at least one: where there are fewer heads than parts, several parts have the same one."""
        return max(1, self.of(spec.num_kv_heads))

    def cached_heads_of(self, spec: ModelSpec) -> int:
        """Number of distinct KV heads of all the parts that are cached here."""
        if spec.num_kv_heads < self.parts:
            num_copies = self.parts // spec.num_kv_heads
            return len({part // num_copies for part in self.cached})
        return sum(replace(self, index=part).of(spec.num_kv_heads) for part in self.cached)

    def query_heads_of(self, spec: ModelSpec) -> int:
        """Number of query heads of its KV heads; parts that have the same KV head share its query heads."""
        num_per_head = spec.num_heads // spec.num_kv_heads
        if spec.num_kv_heads >= self.parts:
            return self.of(spec.num_kv_heads) * num_per_head
        num_copies = self.parts // spec.num_kv_heads
        return replace(self, index=self.index % num_copies, parts=num_copies).of(num_per_head)


def part_of(assignment: Assignment, spec: ModelSpec, *, rank: int) -> RankPart:
    """Finds a rank's part by the order of ranks: those of a stage stand together, and among them those of a cache
    shard."""
    if not assignment.ranks:
        return RankPart(0, 1, 0, spec.num_layers, range(1))
    parallel, share = assignment.parallel, assignment.ranks[rank]
    index, parts, cached = rank % parallel.tp, parallel.tp, range(rank % parallel.tp, rank % parallel.tp + 1)
    if parallel.cp_ffn == "tensor":
        cached = range(index * parallel.cp, (index + 1) * parallel.cp)
        index, parts = cached[rank // parallel.tp % parallel.cp], parallel.tp * parallel.cp
    num_stages_after = rank // (parallel.tp * parallel.cp)
    return RankPart(
        index,
        parts,
        share.first_layer,
        share.num_layers,
        cached,
        head_index=index * parallel.pp + num_stages_after,
        head_parts=parts * parallel.pp,
    )


def memory_violations(
    assignment: Assignment, share: Assignment | RankShare, part: RankPart, *, spec: ModelSpec, hardware: Hardware
) -> Iterator[str]:
    """Lists the rules that the memory of one worker breaks, a sentence each.

    Args:
        share: the worker's share of the assignment; the assignment itself where it serves alone.
    """
    least_weight_bytes = _least_weight_bytes(spec, part)
    if share.weight_bytes < least_weight_bytes:
        yield f"weight_bytes is {share.weight_bytes}; the weights have {least_weight_bytes} at least."
    if share.reserved_bytes < 0:
        yield f"reserved_bytes is {share.reserved_bytes}."
    block_bytes = assignment.block_size * _kv_bytes_of_token(spec, part)
    used_bytes = share.weight_bytes + share.reserved_bytes
    for name, num_total, is_on_worker in (
        ("kv_cache_bytes", assignment.num_blocks, True),
        ("host_cache_bytes", assignment.num_host_blocks, hardware.device == "cpu"),  # the same memory there
    ):
        num_blocks = num_total // assignment.parallel.cp
        stated, counted = getattr(share, name), num_blocks * block_bytes
        if stated != counted:
            yield f"{name} is {stated}; {num_blocks} blocks of {assignment.block_size} tokens have {counted}."
        used_bytes += max(stated, counted) if is_on_worker else 0
    if used_bytes > hardware.memory_bytes:
        yield f"the assignment takes {used_bytes} bytes and the worker has {hardware.memory_bytes}."


def _kv_bytes_of_token(spec: ModelSpec, part: RankPart) -> int:
    num_kv_heads = part.cached_heads_of(spec)
    numbers_per_layer = num_kv_heads * spec.head_dim + num_kv_heads * spec.head_dim
    if spec.latent_dim:  # one vector, which all heads read
        numbers_per_layer = spec.latent_dim
    return numbers_per_layer * part.num_layers * _BYTES_PER_NUMBER[spec.dtype]


def _least_weight_bytes(spec: ModelSpec, part: RankPart) -> int:
    """Least bytes of a checkpoint's matrices in the types they are held in; how the worker packs them only adds to
    that. What another engine takes from the checkpoint are the bytes of its files."""
    if spec.stored_bytes:
        return spec.stored_bytes * part.query_heads_of(spec) // spec.num_heads
    query_width, kv_width = part.query_heads_of(spec) * spec.head_dim, part.kv_heads_of(spec) * spec.head_dim
    attention = 2 * spec.hidden_size * query_width + 2 * spec.hidden_size * kv_width
    layers = range(part.first_layer, part.first_layer + part.num_layers)
    matrices = sum(attention + _num_mlp_weights(spec, part, layer) for layer in layers)
    row = spec.embedding_dim or spec.hidden_size
    has_embedding = layers.start == 0
    if not (spec.tied_embeddings and has_embedding):
        matrices += part.head_rows_of(spec) * row
    matrix_bytes = matrices * _BYTES_PER_NUMBER[spec.quantization or spec.dtype]
    return matrix_bytes + (part.of(spec.vocab_size) * row * _BYTES_PER_NUMBER[spec.dtype] if has_embedding else 0)


def _num_mlp_weights(spec: ModelSpec, part: RankPart, layer: int) -> int:
    width, experts = part.of(spec.intermediate_size), spec.experts
    if experts is not None and (not experts.sparse_layers or experts.sparse_layers[layer]):
        shared_width = part.of(experts.shared_intermediate_size)
        width = part.of(experts.num_experts) * experts.intermediate_size + shared_width
    num_matrices = 3 if spec.family in (ModelFamily.LLAMA, ModelFamily.OTHER) else 2  # their MLPs are gated
    return num_matrices * spec.hidden_size * width
