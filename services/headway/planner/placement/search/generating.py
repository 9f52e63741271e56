"""Models that generate, as the search sees them before it simulates any."""

import numpy as np
from numpy.typing import NDArray

from headway.core.generation import GenerationProfile
from headway.core.slo import Slo
from headway.planner.placement.workload import Lengths, Workload


def full_stage_s(workload: Workload, profile: GenerationProfile) -> NDArray[np.float64]:
    """Returns the seconds that a request of the workload's mean lengths takes of each stage where as many run as can:
    [num_stages].
    """
    lengths = _lengths(workload)
    return np.array(profile.full_stage_s(float(lengths.prompt.mean()), float(lengths.output.mean())))


def can_keep(workload: Workload, profile: GenerationProfile, slo: Slo, *, overhead_s: float) -> bool:
    """Whether the shortest request is short enough, and keeps its objectives alone."""
    lengths = _lengths(workload)
    if int((lengths.prompt + lengths.output).min()) > profile.longest:
        return False
    ttft_s, tpot_s = profile.alone_s(int(lengths.prompt.min()))
    ttft_s += overhead_s
    return slo.is_met(ttft_s=ttft_s, tpot_s=tpot_s, e2e_s=None) and ttft_s <= float(workload.slo_s.max())


def _lengths(workload: Workload) -> Lengths:
    assert workload.lengths is not None, "requests without lengths are refused before"
    return workload.lengths
