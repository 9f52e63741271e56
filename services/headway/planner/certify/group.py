"""Whether the workers of an assignment make a group that can run its model."""

from collections import Counter
from collections.abc import Iterator

from headway.core.model import ModelSpec
from headway.core.plan import Assignment


def group_violations(assignment: Assignment, spec: ModelSpec) -> Iterator[str]:
    """Sentences, one for each rule that layout and ranks break."""
    parallel, ranks = assignment.parallel, assignment.ranks
    if min(parallel.tp, parallel.pp, parallel.cp) < 1:
        yield f"its layout has {parallel.tp} x {parallel.pp} x {parallel.cp} ranks; each axis has one at least."
        return
    if len(ranks) != (parallel.num_ranks if parallel.num_ranks > 1 else 0):
        yield f"{parallel} has {parallel.num_ranks} ranks, and the assignment tells of {len(ranks)}."
        return
    if not ranks:
        return
    if spec.encoder is not None:
        yield "its model does not generate; it runs on one worker."
        return
    yield from _leader_violations(assignment)
    yield from _split_violations(parallel.tp, spec)
    yield from _layer_violations(assignment, spec)


def _leader_violations(assignment: Assignment) -> Iterator[str]:
    """What the assignment says of its worker is what it says of rank 0."""
    leader = assignment.ranks[0]
    for name in ("worker_id", "weight_bytes", "kv_cache_bytes", "reserved_bytes", "host_cache_bytes"):
        if getattr(assignment, name) != getattr(leader, name):
            yield f"{name} is {getattr(assignment, name)}, and {getattr(leader, name)} for rank 0."


def _split_violations(tp: int, spec: ModelSpec) -> Iterator[str]:
    num_per_head = spec.num_heads // spec.num_kv_heads
    if tp > spec.num_kv_heads and (tp % spec.num_kv_heads or tp > spec.num_kv_heads * num_per_head):
        yield f"{spec.num_heads} heads over {spec.num_kv_heads} KV heads cannot be split in {tp}."
    if spec.experts is not None and tp > spec.experts.num_experts:
        yield f"{spec.experts.num_experts} experts cannot be split in {tp}."


def _layer_violations(assignment: Assignment, spec: ModelSpec) -> Iterator[str]:
    """Each layer is on as many ranks as share it, and rank 0, which gives logits, has the last."""
    num_sharing = assignment.parallel.tp * assignment.parallel.cp
    holders = Counter(
        layer for share in assignment.ranks for layer in range(share.first_layer, share.first_layer + share.num_layers)
    )
    if holders != dict.fromkeys(range(spec.num_layers), num_sharing):
        spans = ", ".join(f"{share.first_layer}+{share.num_layers}" for share in assignment.ranks)
        yield f"its ranks have the layers {spans}; each of {spec.num_layers} belongs on {num_sharing}."
    if assignment.ranks[0].first_layer + assignment.ranks[0].num_layers != spec.num_layers:
        yield "rank 0, which gives logits, has not the last layer."
