"""Small pipeline problems, drawn at random."""

from itertools import pairwise

import numpy as np

from headway.planner.graphpipe.problem import Flow, PipelineProblem


def random_problem(
    rng: np.random.Generator, *, size: int, num_devices: int, share: float, is_tight: bool, batch: int = 8
) -> PipelineProblem:
    """Operators with times that grow less than their samples, some state, and tensors between them."""
    flows = []
    for at in range(size):
        readers = tuple(later for later in range(at + 1, size) if rng.random() < share)
        if readers:
            flows.append(Flow(producer=at, consumers=readers, bytes_per_sample=float(rng.integers(0, 4))))
    base, grows = rng.integers(1, 9, size), rng.integers(1, 5, size)
    samples = 1 << np.arange(4)
    forward_s = base[:, None] + grows[:, None] * samples[None, :].astype(float)
    return PipelineProblem(
        forward_s=forward_s,
        backward_s=2 * forward_s,
        state_bytes=rng.integers(0, 6, size).astype(float),
        saved_bytes=rng.integers(0, 4, size).astype(float),
        gradient_bytes=rng.integers(0, 9, size).astype(float),
        flows=tuple(flows),
        batch=batch,
        num_devices=num_devices,
        memory_bytes=float(rng.integers(12, 40)) if is_tight else np.inf,
        handover_bytes_per_s=2.0,
        sync_bytes_per_s=1.0,
    )


def alike(problem: PipelineProblem) -> PipelineProblem:
    """The same, where all operators are alike: forks then have branches of one kind."""
    size = problem.num_operators
    chosen = np.zeros(size, int)
    flows = tuple(Flow(producer=f.producer, consumers=f.consumers, bytes_per_sample=1.0) for f in problem.flows)
    return PipelineProblem(
        forward_s=problem.forward_s[chosen],
        backward_s=problem.backward_s[chosen],
        state_bytes=problem.state_bytes[chosen],
        saved_bytes=problem.saved_bytes[chosen],
        gradient_bytes=problem.gradient_bytes[chosen],
        flows=flows,
        batch=problem.batch,
        num_devices=problem.num_devices,
        memory_bytes=problem.memory_bytes,
        handover_bytes_per_s=problem.handover_bytes_per_s,
        sync_bytes_per_s=problem.sync_bytes_per_s,
    )


def branched(rng: np.random.Generator, *, size: int) -> list[tuple[int, int]]:
    """Edges of a graph with a source, branches of random lengths, and a sink."""
    cuts = sorted(rng.choice(range(1, size - 2), int(rng.integers(1, min(4, size - 2))), replace=False).tolist())
    bounds = [1, *(cut + 1 for cut in cuts), size - 1]
    edges = []
    for start, stop in pairwise(bounds):
        inner = list(range(start, stop))
        edges += [(0, inner[0]), *pairwise(inner), (inner[-1], size - 1)]
    return edges
