"""Cases that nobody recorded: mixed sizes, many models and devices, a whole day. Gamma arrivals, power-law rates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.alpaserve.case import Case
from headway.core.placement import PlacedModel
from headway.core.stage_profile import StageProfile
from headway.planner.placement.workload import Workload

MEMORY_BYTES = 13 * 2**30
DEVICES_PER_NODE = 8
SLO_SCALE = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The recipe of a generated case.

    Attributes:
        kinds: kinds of models, taken in turns.
        rate: requests per second of all models together.
        skew: exponent of the power law that the models' rates follow; 0 for equal rates.
        cv: coefficient of variation of the times between a model's requests.
    """

    name: str
    kinds: tuple[str, ...]
    num_models: int
    num_devices: int
    rate: float
    skew: float = 0.0
    cv: float = 3.0
    duration_s: float = 600.0


MIXED = ("bert-1.3b", "bert-2.6b", "bert-6.7b")
QUALITY = (
    Recipe(name="mixed-16-on-16", kinds=MIXED, num_models=16, num_devices=16, rate=40.0, cv=4.0),
    Recipe(name="mixed-16-on-24", kinds=MIXED, num_models=16, num_devices=24, rate=72.0, skew=0.6),
    Recipe(name="mixed-16-on-32", kinds=MIXED, num_models=16, num_devices=32, rate=92.0, cv=4.0),
    Recipe(
        name="moe-12-on-16",
        kinds=("moe-1.3b", "moe-2.4b", "moe-5.3b", "moe-7.1b", "bert-6.7b", "bert-1.3b"),
        num_models=12,
        num_devices=16,
        rate=44.0,
        cv=4.0,
    ),
)
SPEED = (
    Recipe(name="32-on-16", kinds=("bert-2.6b",), num_models=32, num_devices=16, rate=40.0, skew=0.5),
    Recipe(
        name="256-on-128",
        kinds=("bert-1.3b", "bert-2.6b"),
        num_models=256,
        num_devices=128,
        rate=520.0,
        skew=0.5,
        duration_s=400.0,
    ),
)
DAY = Recipe(name="a-day", kinds=MIXED, num_models=16, num_devices=32, rate=116.0, skew=0.5, duration_s=86_400.0)


def make_case(recipe: Recipe, profiles: Mapping[str, tuple[StageProfile, ...]]) -> Case:
    kinds = [recipe.kinds[index % len(recipe.kinds)] for index in range(recipe.num_models)]
    models = tuple(PlacedModel(name=f"m{index}", profiles=profiles[kind]) for index, kind in enumerate(kinds))
    return Case(
        name=recipe.name,
        models=models,
        num_devices=recipe.num_devices,
        memory_bytes=MEMORY_BYTES,
        devices_per_node=DEVICES_PER_NODE,
        train=make_trace(recipe, models, seed=1000),
        test=make_trace(recipe, models, seed=0),
    )


def make_trace(recipe: Recipe, models: Sequence[PlacedModel], *, seed: int) -> Workload:
    share = np.arange(1, len(models) + 1, dtype=np.float64) ** -recipe.skew
    rates = recipe.rate * share / share.sum()
    arrivals = [_gamma(rate, recipe, seed=seed + index) for index, rate in enumerate(rates)]
    slos = np.array([SLO_SCALE * _smallest_group_s(model) for model in models])
    model = np.concatenate([np.full(len(times), index, np.int32) for index, times in enumerate(arrivals)])
    arrival_s = np.concatenate(arrivals)
    order = np.argsort(arrival_s, kind="stable")
    return Workload(
        models=tuple(each.name for each in models),
        arrival_s=arrival_s[order],
        model=model[order],
        slo_s=slos[model[order]],
    )


def _gamma(rate: float, recipe: Recipe, *, seed: int) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    rng = np.random.default_rng(seed)
    shape = recipe.cv**-2
    spread = 6 * recipe.cv * np.sqrt(rate * recipe.duration_s)
    times = np.cumsum(rng.gamma(shape, 1 / (shape * rate), int(rate * recipe.duration_s + spread) + 10))
    return times[times < recipe.duration_s]


def _smallest_group_s(model: PlacedModel) -> float:
    """Latency in seconds on the fewest devices that a profile knows."""
    smallest = min(model.profiles, key=lambda profile: (profile.pp * profile.op, profile.pp))
    return sum(smallest.batches[0].stage_latency_s)
