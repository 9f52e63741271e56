"""Makes four patterns of arrival."""

import io

import numpy as np

from benchmarks.alpaserve.fidelity.cell import SEED, Pattern

TRACE_FILE = "functions.csv"
_NUM_FUNCTIONS = 120
_SKEW = 1.2
_BURST_S, _PAUSE_S = 2.0, 10.0


def patterns(rate: float, *, duration_s: float) -> tuple[Pattern, ...]:
    """The four patterns, all with `rate` requests/s of all models together, on average."""
    trace = function_trace(rate, duration_s=2 * duration_s)
    return (
        Pattern(name="Poisson", spec=f"poisson:rate={rate:g}", files={}),
        Pattern(name="Gamma, CV 3", spec=f"gamma:rate={rate:g},cv=3", files={}),
        Pattern(name="power law, CV 2", spec=f"powerlaw:rate={rate:g},alpha=0.7,cv=2", files={}),
        Pattern(name="functions", spec=f"azure:{TRACE_FILE}", files={TRACE_FILE: trace}),
    )


def duration_of(rate: float, *, num_requests: int, at_least_s: float) -> float:
    """Seconds in which about `num_requests` arrive."""
    return max(at_least_s, num_requests / rate)


def function_trace(rate: float, *, duration_s: float) -> bytes:
    """Makes invocations in the form of the Azure trace of 2021, and like it: few functions have most of them, in bursts
    with long pauses. Several functions are dealt out to each model."""
    rng = np.random.default_rng(SEED)
    shares = np.arange(1, _NUM_FUNCTIONS + 1) ** -_SKEW
    rng.shuffle(shares)
    rates = rate * shares / shares.sum() * (_BURST_S + _PAUSE_S) / _BURST_S
    rows = []
    for function, its_rate in enumerate(rates):
        at_s = -rng.random() * (_BURST_S + _PAUSE_S)
        while at_s < duration_s:
            burst_s = rng.exponential(_BURST_S)
            times = at_s + rng.random(rng.poisson(its_rate * burst_s)) * burst_s
            rows += [(float(time_s), function) for time_s in times if 0 <= time_s < duration_s]
            at_s += burst_s + rng.exponential(_PAUSE_S)
    text = io.StringIO("")
    text.write("app,func,end_timestamp,duration\n")
    text.writelines(f"app,f{function},{time_s:.6f},0\n" for time_s, function in sorted(rows))
    return text.getvalue().encode()
