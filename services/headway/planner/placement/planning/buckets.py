"""Splits models and groups into parts that have nothing to do with each other. Pure."""

from headway.core.placement import Placement
from headway.core.plan.placement import PlacementBucket


def buckets_of(placement: Placement) -> tuple[PlacementBucket, ...]:
    """Finds the connected components of groups and the models on them; groups without a model are in none."""
    buckets: list[tuple[set[str], list[int]]] = []
    for number, group in enumerate(placement.groups):
        if not group.models:
            continue
        models, groups = set(group.models), [number]
        for bucket in [bucket for bucket in buckets if bucket[0] & models]:
            buckets.remove(bucket)
            models |= bucket[0]
            groups += bucket[1]
        buckets.append((models, sorted(groups)))
    return tuple(
        PlacementBucket(
            models=tuple(sorted(models)),
            groups=tuple(groups),
            num_devices=sum(placement.groups[number].shape.num_devices for number in groups),
        )
        for models, groups in sorted(buckets, key=lambda bucket: bucket[1])
    )
