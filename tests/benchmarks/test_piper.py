"""Piper's own question, on small random inputs, beside all chains of stages."""

import random
from itertools import product
from math import ceil, inf, prod

import numpy as np
import pytest

from benchmarks.graphpipe.piper import Question, least_time_per_sample, read

_DEVICES, _BATCH, _BYTES_PER_S = 4, 8, 25 * 2**30


def random_document(seed: int) -> dict[str, object]:
    generator = random.Random(seed)
    count = generator.randint(2, 5)
    edges = [(a, b) for a in range(count) for b in range(a + 1, count) if generator.random() < 0.5]

    def way(at: int, degree: int, *, recomputes: bool) -> dict[str, object]:
        return {
            "id": str(recomputes),
            "timePerSample": (1 + at + 2 * recomputes) / degree**0.8,
            "parameterSize": generator.choice([0.0, 1e10]),
            "memoryUsageA": 1.0 + 3 * (not recomputes),
            "memoryUsageB": 1.0,
            "syncTimeFw": {str(a): 0.0 if degree == 1 else 1e9 for a, b in edges if b == at},
            "syncTimeBw": {str(b): 2e9 for a, b in edges if a == at},
        }

    nodes = [
        {
            "id": at,
            "TMPCs": {str(t): [way(at, t, recomputes=again) for again in (False, True)] for t in (1, 2)},
        }
        for at in range(count)
    ]
    return {
        "nodes": nodes,
        "edges": [{"sourceId": a, "destId": b, "communicationCost": 3e9} for a, b in edges],
        "bandwidth": _BYTES_PER_S,
    }


def least_load(
    question: Question, members: list[int], degree: tuple[int, int], in_flight: int, memory_bytes: float
) -> float:
    (t, d), inside, found = degree, set(members), inf
    crossing = sum(
        2 * question.sent[number, t, 0 if a in inside else 1]
        for number, (a, b) in enumerate(question.edges.tolist())
        if (a in inside) != (b in inside)
    )
    for ways in product((0, 1), repeat=len(members)):
        chosen = [(at, t, way) for at, way in zip(members, ways, strict=True)]
        if sum(in_flight * question.kept[each] + question.fixed[each] for each in chosen) > memory_bytes:
            continue
        seconds = sum(
            question.seconds[each] / d + 4 * (d - 1) * question.parameters[each] / d / _BATCH / _BYTES_PER_S
            for each in chosen
        )
        found = min(found, seconds + crossing / d / _BYTES_PER_S)
    return found


def by_hand(question: Question, memory_bytes: float) -> float:
    """All chains of sets, each stage with all degrees and all ways, from the last stage to the first."""
    sets = question.sets
    options = [(t, d) for t in (0, 1) for d in (1, 2, 4) if question.degrees[t] * d <= _DEVICES]

    def best(outer: int, devices: int, behind: int, inner: int = 0) -> float:
        """Of what `outer` has beyond `inner`, on so many devices before stages with so many copies."""
        if outer == inner:
            return 0.0
        found = inf
        for middle in range(len(sets)):
            if middle == inner or (sets[inner] & ~sets[middle]).any() or (sets[middle] & ~sets[outer]).any():
                continue
            for t, d in options:
                used = int(question.degrees[t]) * d
                if used > devices:
                    continue
                members = np.flatnonzero(sets[middle] & ~sets[inner]).tolist()
                load = least_load(question, members, (t, d), ceil((behind + d) / d), memory_bytes)
                if load < found:
                    found = min(found, max(load, best(outer, devices - used, behind + d, middle)))
        return found

    return best(len(sets) - 1, _DEVICES, 0)


@pytest.mark.parametrize("seed", range(40))
def test_the_least_time_is_that_of_all_chains(seed: int) -> None:
    """Where memory makes operators recompute, the ways are chosen one after the other, and may be a little worse."""
    question = read(random_document(seed))
    assert prod(question.sets.shape) <= 32 * 5
    for memory_bytes, within in ((1e9, 1e-9), (12.0, 0.35)):
        expected = by_hand(question, memory_bytes)
        found = least_time_per_sample(question, devices=_DEVICES, memory_bytes=memory_bytes, batch=_BATCH)
        assert (found == expected == inf) or expected * (1 - 1e-9) <= found <= expected * (1 + within)
