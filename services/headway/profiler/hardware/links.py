"""Fits models of collectives to their timings. Pure."""

from collections import defaultdict
from collections.abc import Iterable
from statistics import median

import numpy as np

from headway.core.hardware.cell import CellTiming
from headway.core.hardware.family import COLLECTIVES
from headway.core.hardware.profile import LinkFit
from headway.profiler.fit_piecewise import fit_piecewise
from headway.profiler.nnls import solve_nnls

_MIN_SIZES = 3
_MAX_ERROR = 0.05


def fit_links(timings: Iterable[CellTiming]) -> tuple[LinkFit, ...]:
    """Fits each collective and number of ranks that was timed with three sizes or more."""
    groups: defaultdict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
    for timing in timings:
        if timing.cell.family in COLLECTIVES:
            num_ranks, num_bytes = timing.cell.extents
            groups[timing.cell.family, num_ranks].append((num_bytes, timing.seconds))
    return tuple(_fit(*key, sorted(samples)) for key, samples in sorted(groups.items()) if len(samples) >= _MIN_SIZES)


def _fit(collective: str, num_ranks: int, samples: list[tuple[float, float]]) -> LinkFit:
    """Alpha and beta with the least squares of relative errors, and Alpa's piecewise-linear curve."""
    sizes, seconds = np.array(samples, np.float64).T
    features = np.stack([np.ones_like(sizes), sizes], axis=1)
    alpha, beta = solve_nnls(features / seconds[:, None], np.ones(len(samples)))
    errors = np.abs(features @ np.array([alpha, beta]) / seconds - 1)
    return LinkFit(
        collective=collective,
        num_ranks=num_ranks,
        latency_s=float(alpha),
        bytes_per_s=1 / max(float(beta), 1e-15),
        relative_error=float(median(errors)),
        curve=fit_piecewise(samples, max_error=_MAX_ERROR),
    )
