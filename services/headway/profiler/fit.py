"""Fits a latency model to measured steps."""

from collections.abc import Sequence
from statistics import median

import numpy as np

from headway.core.latency import LatencyModel
from headway.core.profile import StepMeasurement
from headway.profiler.nnls import solve_nnls


def fit_latency(fitted: Sequence[StepMeasurement], *, held_out: Sequence[StepMeasurement]) -> LatencyModel:
    """The model with the least squares of relative errors over `fitted`, so that short steps count as much as long.

    Args:
        held_out: measurements that only tell the error; where there are none the fitted ones do.
    """
    durations_s = np.array([measurement.step_s for measurement in fitted])
    features = np.array([_features(measurement) for measurement in fitted])
    coefficients = solve_nnls(features / durations_s[:, None], np.ones(len(fitted)))
    errors = [
        abs(float(np.dot(_features(measurement), coefficients)) / measurement.step_s - 1)
        for measurement in held_out or fitted
    ]
    base_s, per_prefill_token_s, per_prefill_pair_s, per_decode_s, per_context_token_s = map(float, coefficients)
    return LatencyModel(
        base_s=base_s,
        per_prefill_token_s=per_prefill_token_s,
        per_prefill_pair_s=per_prefill_pair_s,
        per_decode_s=per_decode_s,
        per_context_token_s=per_context_token_s,
        relative_error=median(errors),
        origin="measured",
    )


def _features(measurement: StepMeasurement) -> tuple[float, ...]:
    """Returns the features that the coefficients of `LatencyModel` multiply, in its order."""
    num_prefill, num_decodes, num_context = (
        measurement.prefill_tokens,
        measurement.num_decodes,
        measurement.context_tokens,
    )
    return 1.0, num_prefill, num_prefill * (num_context + num_prefill / 2), num_decodes, num_decodes * num_context
