"""Simulates the experiments of section 4.3 of the dissertation: when sharing devices by model parallelism pays."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from headway.core.placement import GroupShape, PlacedGroup, PlacedModel, Placement
from headway.core.stage_profile import StageProfile
from headway.planner.placement.baselines.uniform import uniform_replication
from headway.planner.placement.simulator.outcome import SimulationOutcome
from headway.planner.placement.simulator.rules import Rules
from headway.planner.placement.simulator.simulation import simulate
from headway.planner.placement.workload import Workload
from headway.planner.placement.workloads.arrivals import Window, gamma_arrivals

NUM_DEVICES = 8
MEMORY_BYTES = 13 * 2**30
RATE, CV = 20.0, 3.0
"""Requests per second of all eight models together, and how bursty each model's are: the base setting of the text."""
DURATION_S = 2000.0
SEED = 7
SERVE_ALL, REFUSE_LATE = Rules(admission=False), Rules(admission=True)

Profiles = Mapping[str, tuple[StageProfile, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The outcomes of one setting, by the placement that replicates and the one that pipelines."""

    replication: SimulationOutcome
    pipeline: SimulationOutcome

    @property
    def speedup(self) -> float:
        """Mean latency of replication over that of the pipeline."""
        return self.replication.mean_latency_s / self.pipeline.mean_latency_s


def two_models(profiles: Profiles, *, rates: tuple[float, float], cv: float) -> Pair:
    """Compares two models of 6.7B on two devices: each on its own, or both on a pipeline of two (figure 4.2)."""
    models = models_of(profiles["bert-6.7b"], 2)
    workload = requests(rates, cv=cv, duration_s=10 * DURATION_S)
    single = GroupShape(pp=1, op=1)
    apart = Placement(groups=tuple(PlacedGroup(shape=single, models=(model.name,)) for model in models))
    return Pair(
        replication=simulate(models, apart, workload, SERVE_ALL),
        pipeline=simulate(models, in_pipelines(models, stages=2, num_devices=2), workload, SERVE_ALL),
    )


def memory(profiles: Profiles, *, models_per_device: int) -> Pair:
    """Compares with memory for so many whole models on each device (figure 4.4): the shortest pipeline that holds
    all."""
    models = models_of(profiles["bert-2.6b"], NUM_DEVICES)
    whole_bytes = weight_bytes(models[0].profiles, stages=1)
    workload = requests([RATE / NUM_DEVICES] * NUM_DEVICES, cv=CV)
    return compare(
        models, workload, memory_bytes=models_per_device * whole_bytes, stages=NUM_DEVICES // models_per_device
    )


def arrivals(profiles: Profiles, *, rate: float = RATE, cv: float = CV) -> Pair:
    """Compares with eight stages on real memory, over rates (figure 4.5) and burstiness (figure 4.6)."""
    models = models_of(profiles["bert-2.6b"], NUM_DEVICES)
    return compare(models, requests([rate / NUM_DEVICES] * NUM_DEVICES, cv=cv))


def objectives(profiles: Profiles, *, slo_scale: float, overhead: float | None = None) -> Pair:
    """Compares where requests that would be late are refused (figure 4.7).

    Args:
        slo_scale: of the latency on one device.
        overhead: alpha: n stages of alpha / n of that latency each; None for the profiled stages.
    """
    models = models_of(profiles["bert-2.6b"], NUM_DEVICES)
    latency_s = models[0].profiles[0].latency_s
    if overhead is not None:
        models = models_of(_with_even_stages(profiles["bert-2.6b"], NUM_DEVICES, overhead), NUM_DEVICES)
    workload = requests([RATE / NUM_DEVICES] * NUM_DEVICES, cv=CV, slo_s=slo_scale * latency_s)
    return compare(models, workload, rules=REFUSE_LATE)


def compare(
    models: Sequence[PlacedModel],
    workload: Workload,
    *,
    memory_bytes: int = MEMORY_BYTES,
    stages: int = NUM_DEVICES,
    rules: Rules = SERVE_ALL,
) -> Pair:
    replicated = uniform_replication(models, num_devices=NUM_DEVICES, memory_bytes=memory_bytes)
    return Pair(
        replication=simulate(models, replicated, workload, rules),
        pipeline=simulate(models, in_pipelines(models, stages=stages), workload, rules),
    )


def in_pipelines(models: Sequence[PlacedModel], *, stages: int, num_devices: int = NUM_DEVICES) -> Placement:
    """Places all models on every group of `stages` devices."""
    group = PlacedGroup(shape=GroupShape(pp=stages, op=1), models=tuple(model.name for model in models))
    return Placement(groups=(group,) * (num_devices // stages))


def models_of(profiles: tuple[StageProfile, ...], number: int) -> list[PlacedModel]:
    ordered = tuple(sorted(profiles, key=lambda profile: (profile.pp * profile.op, profile.op)))
    return [PlacedModel(name=f"m{index}", profiles=ordered) for index in range(number)]


def weight_bytes(profiles: Sequence[StageProfile], *, stages: int) -> int:
    """Bytes of weights on the fullest device of a pipeline."""
    return max(next(profile for profile in profiles if (profile.pp, profile.op) == (stages, 1)).weight_bytes)


def requests(
    rates: Sequence[float], *, cv: float, slo_s: float = float("inf"), duration_s: float = DURATION_S
) -> Workload:
    """Draws requests, by one Gamma process for each model."""
    rng = np.random.default_rng(SEED)
    times = [gamma_arrivals([Window(duration_s=duration_s, rate=rate, cv=cv)], rng) for rate in rates]
    model = np.concatenate([np.full(len(each), index, np.int32) for index, each in enumerate(times)])
    arrival_s = np.concatenate(times)
    order = np.argsort(arrival_s, kind="stable")
    return Workload(
        models=tuple(f"m{index}" for index in range(len(rates))),
        arrival_s=arrival_s[order],
        model=model[order],
        slo_s=np.full(len(order), slo_s),
    )


def crossing(points: Sequence[float], measure: Callable[[float], Pair], *, is_better: Callable[[Pair], bool]) -> float:
    """The first point at which pipelines are not better any more; infinite where they always are."""
    return next((point for point in points if not is_better(measure(point))), float("inf"))


def _with_even_stages(profiles: tuple[StageProfile, ...], stages: int, overhead: float) -> tuple[StageProfile, ...]:
    single = next(profile for profile in profiles if profile.pp == profile.op == 1)
    batch = single.batches[0]
    latency_s = overhead * single.latency_s / stages
    even = replace(
        single,
        pp=stages,
        weight_bytes=tuple(total // stages for total in single.weight_bytes * stages),
        batches=(
            replace(batch, stage_latency_s=(latency_s,) * stages, activation_bytes=batch.activation_bytes * stages),
        ),
    )
    return (single, even)
