"""Fits speeds of fabrics and devices to measurements. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from headway.core.cluster import Fabric
from headway.core.links import UsualLinks
from headway.core.model import ModelSpec
from headway.core.parallel_config import SINGLE
from headway.core.profile import StepMeasurement
from headway.planner.serving.cost import StepLoad, cost_of_group
from headway.planner.serving.device_roofline import Roofline

Array = NDArray[np.float64]

_NOTHING = Roofline(
    flops=math.inf, bytes_per_s=math.inf, step_overhead_s=0.0, sequence_overhead_s=0.0, table_entry_s=0.0
)
_UNITS = (
    replace(_NOTHING, flops=1.0),
    replace(_NOTHING, bytes_per_s=1.0),
    replace(_NOTHING, step_overhead_s=1.0),
    replace(_NOTHING, sequence_overhead_s=1.0),
)
_NO_LINKS = UsualLinks(fabric=Fabric(latency_s=0.0, bytes_per_s=math.inf))


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricFit:
    """A fitted fabric; `relative_error` is the median over the samples."""

    fabric: Fabric
    relative_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineFit:
    """`relative_error` is the median over the steps."""

    roofline: Roofline
    relative_error: float


def fit_fabric(samples: Sequence[tuple[int, float]]) -> FabricFit:
    """Fits the latency and the bandwidth by least squares of relative errors.

    Args:
        samples: (bytes that leave a rank, seconds) of collectives of two ranks.

    Raises:
        ValueError: the samples leave one of them undetermined.
    """
    sizes, seconds = np.array(samples, np.float64).T
    features = np.stack([np.ones_like(sizes), sizes], axis=1)
    solution = _solve(features, seconds, weights=1 / seconds)
    return FabricFit(
        fabric=Fabric(latency_s=float(solution[0]), bytes_per_s=1 / float(solution[1])),
        relative_error=_error(features @ solution, seconds),
    )


def fit_roofline(
    steps: Sequence[tuple[ModelSpec, StepMeasurement]], *, table_entry_s: float, widens_quantized: bool = False
) -> RooflineFit:
    """What a device reaches, with the least squares of relative errors.

    Args:
        steps: of one worker; of models of several sizes and with every kind of load, else the terms cannot be told
            apart.
        table_entry_s, widens_quantized: known otherwise, see `Roofline`.

    Raises:
        ValueError: the steps leave a term undetermined.
    """
    known = replace(_NOTHING, table_entry_s=table_entry_s, widens_quantized=widens_quantized)
    probes = [replace(unit, widens_quantized=widens_quantized) for unit in _UNITS]
    seconds = np.array([measurement.step_s for _, measurement in steps])
    known_s = np.array([_seconds(*step, known) for step in steps])
    features = np.array([[_seconds(*step, probe) for probe in probes] for step in steps])
    solution = _solve(features, seconds - known_s, weights=1 / seconds)
    s_per_flop, s_per_byte, step_s, sequence_s = solution.tolist()
    return RooflineFit(
        roofline=replace(
            known,
            flops=1 / s_per_flop,
            bytes_per_s=1 / s_per_byte,
            step_overhead_s=step_s,
            sequence_overhead_s=sequence_s,
        ),
        relative_error=_error(features @ solution + known_s, seconds),
    )


def _seconds(spec: ModelSpec, measurement: StepMeasurement, roofline: Roofline) -> float:
    load = StepLoad(
        num_decodes=measurement.num_decodes,
        context_tokens=measurement.num_decodes * measurement.context_tokens,
        prefill_tokens=measurement.prefill_tokens,
        prefill_context=measurement.context_tokens,
    )
    return cost_of_group(spec, SINGLE, roofline=roofline, links=_NO_LINKS).step(load).total_s


def _solve(features: Array, seconds: Array, *, weights: Array) -> Array:
    """Solves for the coefficients; raises ValueError where one is not above 0."""
    scale = np.linalg.norm(features, axis=0)
    matrix = features / scale * weights[:, None]
    solution: Array = np.linalg.lstsq(matrix, seconds * weights, rcond=None)[0] / scale
    if np.linalg.matrix_rank(matrix) < len(scale) or solution.min() <= 0:
        raise ValueError(f"The measurements do not determine every term ({solution}); take more that differ.")
    return solution


def _error(expected: Array, measured: Array) -> float:
    return float(np.median(np.abs(expected / measured - 1)))
