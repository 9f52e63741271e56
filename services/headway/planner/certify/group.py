"""Checks that the workers of an assignment make a group that can run its model."""

from collections import Counter
from collections.abc import Iterator

from headway.core.model import ModelSpec
from headway.core.plan.serving import Assignment


def group_violations(assignment: Assignment, spec: ModelSpec) -> Iterator[str]:
    """Lists the rules that layout and ranks break, a sentence each."""
    parallel, ranks = assignment.parallel, assignment.ranks
    if min(parallel.tp, parallel.pp, parallel.cp) < 1:
        yield f"its layout has {parallel.tp} x {parallel.pp} x {parallel.cp} ranks; each axis has one at least."
        return
    if parallel.cp_ffn not in ("data", "tensor") or (parallel.cp_ffn == "tensor" and parallel.cp == 1):
        yield f"cp_ffn is '{parallel.cp_ffn}', with cp {parallel.cp}."
        return
    if len(ranks) != (parallel.num_ranks if parallel.num_ranks > 1 else 0):
        yield f"{parallel} has {parallel.num_ranks} ranks, and the assignment tells of {len(ranks)}."
        return
    if not ranks:
        return
    if spec.encoder is not None and parallel.cp > 1:
        yield "its model does not generate: there are no keys and values for cache shards."
        return
    yield from _leader_violations(assignment)
    yield from _split_violations(parallel.tp * (parallel.cp if parallel.cp_ffn == "tensor" else 1), spec)
    yield from _layer_violations(assignment, spec)
    yield from _block_violations(assignment)


def _leader_violations(assignment: Assignment) -> Iterator[str]:
    """Checks that the assignment says of its worker what it says of rank 0."""
    leader = assignment.ranks[0]
    for name in ("worker_id", "weight_bytes", "kv_cache_bytes", "reserved_bytes", "host_cache_bytes"):
        if getattr(assignment, name) != getattr(leader, name):
            yield f"{name} is {getattr(assignment, name)}, and {getattr(leader, name)} for rank 0."


def _split_violations(parts: int, spec: ModelSpec) -> Iterator[str]:
    num_per_head = spec.num_heads // spec.num_kv_heads
    if parts > spec.num_kv_heads and (parts % spec.num_kv_heads or parts > spec.num_kv_heads * num_per_head):
        yield f"{spec.num_heads} heads over {spec.num_kv_heads} KV heads cannot be split in {parts}."
    if spec.experts is not None and parts > spec.experts.num_experts:
        yield f"{spec.experts.num_experts} experts cannot be split in {parts}."


def _layer_violations(assignment: Assignment, spec: ModelSpec) -> Iterator[str]:
    """Checks that each layer is on as many ranks as share it, and that rank 0, which gives logits, has the last."""
    num_sharing = assignment.parallel.tp * assignment.parallel.cp
    holders = Counter(
        layer for share in assignment.ranks for layer in range(share.first_layer, share.first_layer + share.num_layers)
    )
    if holders != dict.fromkeys(range(spec.num_layers), num_sharing):
        spans = ", ".join(f"{share.first_layer}+{share.num_layers}" for share in assignment.ranks)
        yield f"its ranks have the layers {spans}; each of {spec.num_layers} belongs on {num_sharing}."
    if assignment.ranks[0].first_layer + assignment.ranks[0].num_layers != spec.num_layers:
        yield "rank 0, which gives logits, has not the last layer."
    yield from _stage_violations(assignment, spec)


def _stage_violations(assignment: Assignment, spec: ModelSpec) -> Iterator[str]:
    """Checks that the first ranks have the last stage, the next ones that before it, and so on, without gaps."""
    parallel, num_layers = assignment.parallel, spec.num_layers
    sizes = list(parallel.stage_layers)
    if not sizes:
        sizes = [num_layers // parallel.pp + (stage < num_layers % parallel.pp) for stage in range(parallel.pp)]
    if len(sizes) != parallel.pp or sum(sizes) != num_layers or min(sizes) < 1:
        yield f"its stages have {', '.join(map(str, sizes))} layers; {parallel.pp} stages share {num_layers}."
        return
    num_sharing = parallel.tp * parallel.cp
    for rank, share in enumerate(assignment.ranks):
        stage = parallel.pp - 1 - rank // num_sharing
        first, size = sum(sizes[:stage]), sizes[stage]
        if (share.first_layer, share.num_layers) != (first, size):
            yield (
                f"rank {rank} is in stage {stage}, which has {size} layers from {first} on; it has "
                f"{share.num_layers} from {share.first_layer} on."
            )


def _block_violations(assignment: Assignment) -> Iterator[str]:
    """Checks that each cache shard has equally many blocks."""
    for name in ("num_blocks", "num_host_blocks"):
        if (value := getattr(assignment, name)) % assignment.parallel.cp:
            yield f"{name} is {value}, which {assignment.parallel.cp} cache shards cannot share evenly."
