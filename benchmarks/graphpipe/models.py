"""The paper's models as operators with times and bytes (GraphPipe, appendix A.2), on V100s of Summit.

A matrix product reaches its rate with its rows: half of it at `HALF_ROWS`. All is float32, as FlexFlow runs it; Adam
keeps four numbers for each parameter.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from headway.planner.graphpipe.problem import Flow, PipelineProblem

RATE, BYTES_PER_S, LAUNCH_S, HALF_ROWS = 14e12, 900e9, 2e-5, 512.0
EDR_BYTES_PER_S, MEMORY_BYTES = 12.5e9, 16e9
NUM_SIZES = 14


@dataclass(frozen=True, slots=True)
class Work:
    """One operator, of one sample: parameters, multiply-adds, rows of its product, numbers that it makes."""

    parameters: float
    multiply_adds: float
    rows: int
    made: float


def transformer(num_layers: int, *, seq: int = 256, hidden: int = 1024) -> list[Work]:
    """Attention, addition, norm, two linear layers, addition, norm."""
    size, light = seq * hidden, Work(0, 0, seq, seq * hidden)
    layer = [
        Work(4 * hidden**2, 4 * size * hidden + 2 * seq * size, seq, size),
        light,
        Work(2 * hidden, 0, seq, size),
        Work(4 * hidden**2, 4 * size * hidden, seq, 4 * size),
        Work(4 * hidden**2, 4 * size * hidden, seq, size),
        light,
        Work(2 * hidden, 0, seq, size),
    ]
    return layer * num_layers


def plain_transformer(num_layers: int, *, seq: int = 256, hidden: int = 1024) -> list[Work]:
    """Attention and two linear layers: the case study's (figure 9)."""
    size = seq * hidden
    return [
        Work(4 * hidden**2, 4 * size * hidden + 2 * seq * size, seq, size),
        Work(4 * hidden**2, 4 * size * hidden, seq, 4 * size),
        Work(4 * hidden**2, 4 * size * hidden, seq, size),
    ] * num_layers


def tower(num_layers: int, *, hidden: int = 4096) -> list[Work]:
    """Linear layers, each with its activation."""
    return [Work(hidden**2, hidden**2, 1, hidden), Work(0, 0, 1, hidden)] * num_layers


def embedding(*, entries: float = 1e6, width: int = 64, bag: int = 100) -> list[Work]:
    return [Work(entries * width, 0, bag, bag * width)]


def mmt(num_branches: int) -> list[list[Work]]:
    """32 layers in all."""
    return [transformer(32 // num_branches)] * num_branches


def dlrm(num_branches: int) -> list[list[Work]]:
    """As many dense branches as sparse ones."""
    return [tower(4)] * num_branches + [embedding()] * num_branches


def candle(num_branches: int) -> list[list[Work]]:
    return [tower(4)] * num_branches


MODELS = {
    "MMT, 2 branches": partial(mmt, 2),
    "MMT, 4 branches": partial(mmt, 4),
    "DLRM, 8 branches": partial(dlrm, 8),
    "DLRM, 7 branches": partial(dlrm, 7),
    "CANDLE-Uno, 8 branches": partial(candle, 8),
    "CANDLE-Uno, 7 branches": partial(candle, 7),
}
BATCH_OF_A_DEVICE = {"MMT": 16, "DLRM": 64, "CANDLE-Uno": 1024}
"""Appendix A.2's mini-batches grow with the devices."""


def pipeline_problem(
    branches: Sequence[Sequence[Work]],
    *,
    num_devices: int,
    batch: int,
    memory_bytes: float = MEMORY_BYTES,
    is_joined: bool = True,
) -> PipelineProblem:
    """Branches side by side, and unless they end apart a concatenation at their end."""
    works: list[Work] = []
    flows: list[Flow] = []
    ends = []
    for branch in branches:
        for i, work in enumerate(branch):
            if i:
                flows.append(
                    Flow(producer=len(works) - 1, consumers=(len(works),), bytes_per_sample=4 * works[-1].made)
                )
            works.append(work)
        ends.append(len(works) - 1)
    if is_joined and len(branches) > 1:
        made = sum(works[end].made for end in ends)
        flows += [Flow(producer=end, consumers=(len(works),), bytes_per_sample=4 * works[end].made) for end in ends]
        works.append(Work(0, 0, 1, made))
    samples = 1 << np.arange(NUM_SIZES)
    forward_s = np.array([_forward_s(work, samples) for work in works])
    parameters = np.array([work.parameters for work in works])
    return PipelineProblem(
        forward_s=forward_s,
        backward_s=2 * forward_s,
        state_bytes=16 * parameters,
        saved_bytes=np.array([4 * work.made for work in works]),
        gradient_bytes=4 * parameters,
        flows=tuple(flows),
        batch=batch,
        num_devices=num_devices,
        memory_bytes=memory_bytes,
        handover_bytes_per_s=EDR_BYTES_PER_S,
        sync_bytes_per_s=EDR_BYTES_PER_S,
    )


def _forward_s(work: Work, samples: np.ndarray) -> np.ndarray:
    rows = work.rows * samples
    product_s = 2 * work.multiply_adds * samples / RATE * (1 + HALF_ROWS / rows)
    moved_s = (4 * min(work.parameters, work.multiply_adds) + 12 * work.made * samples) / BYTES_PER_S
    return np.asarray(LAUNCH_S + np.maximum(product_s, moved_s))
