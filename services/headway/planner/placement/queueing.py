"""Mean latencies of deterministic service under Poisson arrivals (dissertation section 4.3.4), in seconds.

A single device or pipeline is an M/D/1 queue; rates are in requests per second. A rate at or above what the devices can
serve raises InvalidArgumentError: its queue grows for ever.
"""

from collections.abc import Callable

from headway.core.errors import InvalidArgumentError


def queue_length(rate: float, service_s: float) -> float:
    """Requests that wait on average, L_Q."""
    load = rate * service_s
    if not 0 <= load < 1:
        raise InvalidArgumentError(
            f"{rate:g} requests/s of {service_s:g} s each keep a device busy {load:.0%} of the time.",
            hint="A queue has a mean only below 100 %.",
            field="rate",
        )
    return load / (2 * (1 - load))


def device_latency_s(rate: float, latency_s: float) -> float:
    """W of one device that takes `latency_s` a request."""
    return latency_s + queue_length(rate, latency_s) * latency_s


def simple_latency_s(rate: float, latency_s: float, *, share: float = 0.5) -> float:
    """W_simple: two models, each on a device of its own; `share` of the requests are for the first."""
    return sum(part * device_latency_s(part * rate, latency_s) for part in (share, 1 - share))


def pipeline_latency_s(rate: float, *, total_s: float, slowest_s: float) -> float:
    """W_pipeline: all requests through one pipeline that takes `total_s` (D_s), its slowest stage `slowest_s` (D_m)."""
    return total_s + queue_length(rate, slowest_s) * slowest_s


def largest_communication_overhead(load: float) -> float:
    """Largest alpha at which two stages of alpha D / 2 are no slower than two devices of D each (figure 4.10).

    Args:
        load: lambda D, of both devices together, in [0, 2).
    """
    return _largest(load, lambda alpha: pipeline_latency_s(load, total_s=alpha, slowest_s=alpha / 2))


def largest_uneven_overhead(load: float) -> float:
    """Largest beta at which stages of which the slower takes beta D / 2 are no slower than two devices of D each."""
    return _largest(load, lambda beta: pipeline_latency_s(load, total_s=1.0, slowest_s=beta / 2))


def _largest(load: float, latency_s: Callable[[float], float]) -> float:
    """Finds the largest overhead by bisection: both latencies rise with it, and at 1 the pipeline is never the
    slower.
    """
    bound_s = simple_latency_s(load, 1.0)
    if load == 0:
        raise InvalidArgumentError("Without load nothing waits.", hint="Give a load above 0 and below 2.", field="load")
    low, high = 1.0, 2 / load
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if latency_s(middle) <= bound_s else (low, middle)
    return low
