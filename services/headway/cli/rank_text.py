"""A rank's place in its group, in a few words."""

from headway.core.plan.serving import Assignment


def rank_text(assignment: Assignment, rank: int) -> str:
    """Describes the part of a model that a rank holds: 'layers 4-7, cache shard 1 of 2'; '' where ranks share each
    layer and nothing else."""
    parallel = assignment.parallel
    place, share = parallel.place(rank), assignment.shares[rank]
    parts = []
    if parallel.pp > 1 and not isinstance(share, Assignment) and share.num_layers:
        last = share.first_layer + share.num_layers - 1
        parts.append(f"layers {share.first_layer}-{last}" if share.num_layers > 1 else f"layer {last}")
    if parallel.cp > 1:
        parts.append(f"cache shard {place.shard} of {parallel.cp}")
    return ", ".join(parts)
