"""One policy under load: what its memory is used for, and the request rate that it sustains."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from statistics import fmean

from benchmarks.engine.clock import VirtualClock, WallClock
from benchmarks.engine.dataset import Dataset
from benchmarks.engine.service import as_group, run_at_full_load, serve
from benchmarks.engine.simulation import Simulation
from benchmarks.serve.workload import make_workload
from benchmarks.waste.contiguous import ContiguousBlocks
from benchmarks.waste.meter import Meter, Use
from benchmarks.waste.policy import Policy
from headway.core.latency import LatencyModel
from headway.engine.config import EngineConfig
from headway.engine.engine import Engine
from headway.runner.model_runner import ModelRunner

SEED = 9
NUM_WAITING = 500  # at first, to see what memory is used for
CURVE = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0, 1.1)  # of the rate that paging sustains


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of a policy on a dataset.

    Attributes:
        use: of the pool while requests wait.
        rate_per_s: sustained below the bound on the mean normalised latency.
        curve: (requests/s, mean normalised latency in seconds).
        real_latency_s: the real runner's normalised latency at that rate, where it was asked for.
    """

    dataset: Dataset
    policy: Policy
    use: Use
    rate_per_s: float
    curve: tuple[tuple[float, float], ...]
    real_latency_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How the policies are compared.

    Attributes:
        bound_s: on the mean normalised latency.
        num_lifetimes: length of each simulated trace, in times that a mean request takes when it is alone.
        num_real_requests: of each run of the real model, 0 for none.
    """

    config: EngineConfig
    latency: LatencyModel
    bound_s: float
    num_lifetimes: float
    num_real_requests: int = 0


def compare_policies(load: Load, dataset: Dataset, runner: ModelRunner) -> Iterator[Finding]:
    """Each policy on the same requests, paging first; all curves go over the same rates."""
    rates_per_s: tuple[float, ...] = ()
    for policy in Policy:
        setting = simulation(policy, config=load.config, latency=load.latency)
        rate_per_s = setting.sustained_rate_per_s(dataset, bound_s=load.bound_s, num_lifetimes=load.num_lifetimes)
        rates_per_s = rates_per_s or tuple(rate_per_s * share for share in CURVE)
        yield Finding(
            dataset=dataset,
            policy=policy,
            use=use_at_full_load(setting, dataset, num_requests=NUM_WAITING),
            rate_per_s=rate_per_s,
            curve=tuple((rate, latency_at(setting, dataset, rate, load)) for rate in rates_per_s),
            real_latency_s=real_latency_s(
                setting, runner, dataset, rate_per_s=rate_per_s, num_requests=load.num_real_requests
            )
            if load.num_real_requests
            else None,
        )


def latency_at(setting: Simulation, dataset: Dataset, rate_per_s: float, load: Load) -> float:
    return setting.serve(dataset, rate_per_s=rate_per_s, num_lifetimes=load.num_lifetimes).normalised_latency_s


def simulation(policy: Policy, *, config: EngineConfig, latency: LatencyModel) -> Simulation:
    """The engine as the policy would have it."""
    if policy is Policy.PAGED:
        return Simulation(config=config, latency=latency)
    make_blocks = partial(
        ContiguousBlocks,
        config.num_blocks,
        block_size=config.block_size,
        policy=policy,
        max_model_len=config.max_model_len,
    )
    return Simulation(config=config, latency=latency, make_blocks=make_blocks)


def use_at_full_load(setting: Simulation, dataset: Dataset, *, num_requests: int) -> Use:
    """What the pool is used for while requests wait."""
    meter = Meter(num_slots=setting.config.num_blocks * setting.config.block_size, block_size=setting.config.block_size)
    engine = setting.engine(VirtualClock(), observe=meter.observe)
    for index, request in enumerate(make_workload(dataset.workload(num_requests, seed=SEED))):
        engine.submit_group(as_group(request, str(index)))
    run_at_full_load(engine, num_sequences=num_requests, on_steady=meter.uses.clear)
    return meter.mean()


def real_latency_s(
    setting: Simulation, runner: ModelRunner, dataset: Dataset, *, rate_per_s: float, num_requests: int
) -> float:
    """Mean normalised latency of the same engine with the real model, in real time."""
    clock = WallClock()
    blocks = None if setting.make_blocks is None else setting.make_blocks()
    engine = Engine(setting.config, runner=runner, clock=clock, blocks=blocks)
    requests = make_workload(dataset.workload(num_requests, seed=SEED, rate_per_s=rate_per_s))
    return fmean(each.normalised_latency_s for each in serve(engine, requests, clock=clock))
