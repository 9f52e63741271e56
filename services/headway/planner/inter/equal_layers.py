"""Cuts pipelines whose stages have equally many layers, as rules of thumb do (dissertation section 3.8.3). Pure."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from headway.planner.inter.stage_dp import StageCosts, StageCut, cut_stages


def cut_equally(
    costs: StageCosts,
    *,
    num_devices: int | Sequence[int],
    num_micro_batches: int,
    min_stages: int = 1,
    max_stages: int | None = None,
) -> StageCut | None:
    """The best pipeline of stages with the same number of layers, give or take one; None where none fits.

    Args:
        num_devices, min_stages, max_stages: see `cut_stages`.
    """
    num_layers = costs.latency_s.shape[0]
    total = num_devices if isinstance(num_devices, int) else sum(num_devices)
    most = min(num_layers, total if max_stages is None else max_stages)
    best: StageCut | None = None
    for num_stages in range(min_stages, most + 1):
        found = cut_stages(
            _of_size(costs, {num_layers // num_stages, -(-num_layers // num_stages)}),
            num_devices=num_devices,
            num_micro_batches=num_micro_batches,
            min_stages=num_stages,
            max_stages=num_stages,
        )
        if found is not None and (best is None or found.iteration_s < best.iteration_s):
            best = found
    return best


def _of_size(costs: StageCosts, sizes: set[int]) -> StageCosts:
    """The same costs, where only runs of so many layers are possible."""
    at = np.arange(costs.latency_s.shape[0])
    is_allowed = np.isin(at[None, :] - at[:, None] + 1, list(sizes))
    return replace(costs, latency_s=np.where(is_allowed[:, :, None, None], costs.latency_s, np.inf))
