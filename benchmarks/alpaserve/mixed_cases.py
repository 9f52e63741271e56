"""Random cases of many models of mixed sizes, with several traces that the search has not seen."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from benchmarks.alpaserve.case import Case
from benchmarks.alpaserve.generated import DEVICES_PER_NODE, MEMORY_BYTES, MIXED, Recipe, make_case, make_trace
from headway.core.stage_profile import StageProfile
from headway.planner.placement.workload import Workload

NUM_HELD_OUT = 8
DURATION_S = 300.0
FULLEST = 0.95
"""Share of the devices' memory that one replica of each model takes at most."""
LEAST_BUSY, MOST_BUSY = 0.6, 0.8
"""Seconds of models on one device that arrive, by device and second."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MixedCase:
    """A case, and other traces of its processes."""

    case: Case
    held_out: tuple[Workload, ...]


def make_mixed_case(seed: int, profiles: Mapping[str, tuple[StageProfile, ...]]) -> MixedCase:
    recipe = draw_recipe(seed, profiles)
    case = make_case(recipe, profiles)
    held_out = tuple(make_trace(recipe, case.models, seed=10_000 * (number + 1)) for number in range(NUM_HELD_OUT))
    return MixedCase(case=case, held_out=held_out)


def draw_recipe(seed: int, profiles: Mapping[str, tuple[StageProfile, ...]]) -> Recipe:
    """40 to 80 models of three sizes on 16 to 64 devices, the models drawn again until the devices hold each once."""
    rng = np.random.default_rng(seed)
    weight_bytes = np.array([max(_alone(profiles[kind]).weight_bytes) for kind in MIXED])
    latency_s = np.array([sum(_alone(profiles[kind]).batches[0].stage_latency_s) for kind in MIXED])
    num_devices = int(rng.integers(16 // DEVICES_PER_NODE, 64 // DEVICES_PER_NODE + 1)) * DEVICES_PER_NODE
    while True:
        num_models = int(rng.integers(40, 81))
        kinds = rng.choice(len(MIXED), num_models, p=rng.dirichlet(np.full(len(MIXED), 3.0)))
        if weight_bytes[kinds].sum() <= FULLEST * MEMORY_BYTES * num_devices:
            break
    skew, cv = float(rng.uniform(0.3, 1.0)), float(rng.uniform(2.0, 5.0))
    share = np.arange(1, num_models + 1, dtype=np.float64) ** -skew
    request_s = float(latency_s[kinds] @ share / share.sum())
    return Recipe(
        name=f"{num_models} on {num_devices}, seed {seed}",
        kinds=tuple(MIXED[kind] for kind in kinds),
        num_models=num_models,
        num_devices=num_devices,
        rate=float(rng.uniform(LEAST_BUSY, MOST_BUSY)) * num_devices / request_s,
        skew=skew,
        cv=cv,
        duration_s=DURATION_S,
    )


def _alone(profiles: tuple[StageProfile, ...]) -> StageProfile:
    """On one device."""
    return next(profile for profile in profiles if profile.pp == profile.op == 1)
