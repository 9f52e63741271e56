"""The arrivals of AlpaServe's recorded cases, drawn as the artifact's `GammaProcess` draws them, to the bit."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from headway.planner.placement.workload import Workload

DIRECTORY = Path(__file__).parent
CASES = DIRECTORY / "alpaserve_cases.json"
PROFILES = DIRECTORY / "alpaserve_profiles.json"


def recorded_workload(case: dict[str, Any], *, train: bool = False) -> Workload:
    """The case's test trace, or the one that placements are searched on."""
    first_seed = 1000 if train else 0
    rows = sorted(
        (at_s, model["name"], index)
        for index, model in enumerate(case["models"])
        for at_s in _arrivals(model["rate_rps"], model["cv"], case["duration_s"], seed=first_seed + index)
    )
    slos = [np.inf if model["slo_s"] is None else model["slo_s"] for model in case["models"]]
    return Workload(
        models=tuple(model["name"] for model in case["models"]),
        arrival_s=np.array([at_s for at_s, _, _ in rows]),
        model=np.array([index for _, _, index in rows], np.int32),
        slo_s=np.array([slos[index] for _, _, index in rows]),
    )


def write_traces(directory: Path) -> Path:
    """The cases with profiles and traces beside them, as the benchmark reads them; returns the path of the cases."""
    document = json.loads(CASES.read_text())
    for case in document["cases"]:
        for field in ("trace", "train_trace"):
            path = directory / case[field]
            path.parent.mkdir(exist_ok=True)
            workload = recorded_workload(case, train=field == "train_trace")
            columns = zip(workload.arrival_s.tolist(), workload.model, workload.slo_s.tolist(), strict=True)
            rows = [f"{at_s!r},{workload.models[model]},{slo_s!r}" for at_s, model, slo_s in columns]
            path.write_text("\n".join(["time_s,model,slo_s", *rows]))
    for source in (CASES, PROFILES):
        (directory / source.name).write_text(source.read_text())
    return directory / CASES.name


def _arrivals(rate: float, cv: float, duration_s: float, *, seed: int) -> Iterator[float]:
    """A fifth more intervals than are expected, and as many again where they do not last."""
    rng = np.random.RandomState(seed)  # numpy keeps its streams as they are for ever
    at_s = 0.0
    while True:
        for interval_s in rng.gamma(1 / (cv * cv), cv * cv / rate, max(int(rate * duration_s * 1.2), 1)):
            at_s += float(interval_s)
            if at_s >= duration_s:
                return
            yield at_s
