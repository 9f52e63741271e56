"""Measures a language model on two workers of this machine with one thread each, with objectives for its tokens."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean

from benchmarks.alpaserve.fidelity.cell import Cell, Pattern, measure
from benchmarks.alpaserve.fidelity.generated_load import send_generated
from benchmarks.alpaserve.fidelity.live_plan import profiled_plan
from benchmarks.alpaserve.fidelity.overhead import answer_overhead, measure_overhead
from benchmarks.alpaserve.fidelity.patterns import duration_of, patterns
from benchmarks.model import BENCHMARK_SPEC, make_benchmark_model
from deploy.demo.stack import running_stack
from headway.client import AsyncClient
from headway.core.catalogue.figure import Provenance
from headway.core.generation import generation_profile_of
from headway.core.latency import LatencyModel
from headway.core.live_placement import live_placement
from headway.core.model import RopeSpec
from headway.core.placement_problem import PlacementProblem, ProblemModel, ServingCluster, TokenLengths, WorkloadSource
from headway.core.plan.serving import ServingPlan
from headway.core.slo import Slo
from headway.core.stage_profile import StageProfile, stage_profile_id

MODEL = "chat"
SPEC = replace(
    BENCHMARK_SPEC,
    num_layers=120,
    max_position=4096,
    hidden_size=128,
    num_heads=4,
    num_kv_heads=2,
    head_dim=32,
    intermediate_size=352,
    rope=RopeSpec(theta=10_000.0, rotary_dim=32),
)
"""Deep, so that what gateway and client take of the same processor for each token matters less; and narrow, since a
wide one waits for memory, which both workers share and no placement knows of."""
LOAD = 0.35
"""Of what the two workers can do together with full batches."""
SLO_SCALES = (2.0, 4.0, 8.0)
PROMPT, OUTPUT = TokenLengths(mean=512.0, cv=0.6), TokenLengths(mean=36.0, cv=0.6)
MAX_NUM_SEQS = 8
NUM_WARM_UP = 60
_DEVICE = "CPU"


def measure_generating(directory: Path, *, num_requests: int, duration_s: float) -> list[Cell]:
    """Measures each scale and pattern for so many requests, and so long at least, on two replicas, after the overhead
    of first tokens on others like them; the stack's state goes into the directory.

    Raises:
        CalledProcessError: a `headway` command failed, which has said why.
        HeadwayError: a request was neither answered nor refused; the model was not profiled in time.
    """
    limits = ("--max-num-seqs", str(MAX_NUM_SEQS), "--max-model-len", "4096")
    # Every row asks the same prompts, and the simulator has no prefix cache.
    flags = ("--workers", "2", "--threads", "1", "--no-prefix-cache", *limits)
    model = ("--model", f"{MODEL}={make_benchmark_model(directory / MODEL, spec=SPEC)}")
    with running_stack(directory / "state", *flags, *model) as stack:
        overhead_s = asyncio.run(_measure_overhead(stack.grpc_endpoint))
    with running_stack(directory / "state", *flags, *model, *answer_overhead(overhead_s)) as stack:
        return asyncio.run(
            _measure(stack.grpc_endpoint, num_requests=num_requests, duration_s=duration_s, overhead_s=overhead_s)
        )


def problem_of(plan: ServingPlan) -> PlacementProblem:
    """The placement problem with the latencies that the stack itself has of its model."""
    assignment = plan.assignments[0]
    profile = StageProfile(
        profile_id=stage_profile_id(MODEL, _DEVICE, pp=1, op=1),
        model=MODEL,
        hardware=_DEVICE,
        pp=1,
        op=1,
        weight_bytes=(assignment.weight_bytes,),
        batches=(),
        source="the running stack",
        provenance=Provenance.MEASURED,
        created_at_s=0.0,
        generation=generation_profile_of(assignment),
    )
    return PlacementProblem(
        models=(ProblemModel(name=MODEL, architecture=MODEL, prompt=PROMPT, output=OUTPUT),),
        profiles=(profile,),
        cluster=ServingCluster(device=_DEVICE, num_devices=2, devices_per_node=2, memory_bytes=2**33),
        workload=WorkloadSource(spec="poisson:rate=1"),
    )


async def _measure_overhead(endpoint: str) -> float:
    """Measures the overhead beside what the router predicts once it has learned from live steps."""
    plan = await profiled_plan(endpoint)
    problem, placement = problem_of(plan), live_placement(plan, (MODEL,))
    await _warm_up(problem, _rate(plan), endpoint=endpoint)
    learned = await _relearn(problem, endpoint=endpoint)
    return await measure_overhead(learned, placement, endpoint=endpoint, num_together=len(placement.groups))


def _rate(plan: ServingPlan) -> float:
    """The rate to send at, in requests per second."""
    busy_s = sum(generation_profile_of(plan.assignments[0]).full_stage_s(PROMPT.mean, OUTPUT.mean))
    return LOAD * len(plan.assignments) / busy_s


async def _measure(endpoint: str, *, num_requests: int, duration_s: float, overhead_s: float) -> list[Cell]:
    plan = await profiled_plan(endpoint)
    problem, rate = problem_of(plan), _rate(plan)
    ttft_s, tpot_s = problem.alone_s(problem.models[0])
    print(f"\nalone a first token takes {ttft_s * 1000:.0f} ms, a further one {tpot_s * 1000:.1f} ms", flush=True)
    duration_s = duration_of(rate, num_requests=num_requests, at_least_s=duration_s)
    await _warm_up(problem, rate, endpoint=endpoint)
    return await measure(
        problem,
        live_placement(plan, (MODEL,)),
        patterns=patterns(rate, duration_s=duration_s),
        slo_scales=SLO_SCALES,
        duration_s=duration_s,
        endpoint=endpoint,
        answer_overhead_s=overhead_s,
        relearn=partial(_relearn, endpoint=endpoint),
    )


async def _warm_up(problem: PlacementProblem, rate: float, *, endpoint: str) -> None:
    """Sends bursts without objectives, from which the router learns what live steps take."""
    pattern = Pattern(name="warm-up", spec=f"gamma:rate={rate:g},cv=3", files={})
    workload = pattern.workload(problem, slo_scale=1.0, duration_s=NUM_WARM_UP / rate)
    await send_generated(workload, {MODEL: Slo()}, endpoint=endpoint)


async def _relearn(problem: PlacementProblem, *, endpoint: str) -> PlacementProblem:
    """The problem with the mean of the latency models from which the router predicts both replicas."""
    async with AsyncClient(endpoint) as client:
        groups = (await client.status()).fleet.groups
    latency = _mean([group.latency for group in groups if group.latency is not None])
    (profile,) = problem.profiles
    assert profile.generation is not None, "the model generates"
    generation = replace(profile.generation, latency=latency, stage_latencies=(latency,))
    print(f"steps: {latency}", flush=True)
    return replace(problem, profiles=(replace(profile, generation=generation),))


def _mean(latencies: Sequence[LatencyModel]) -> LatencyModel:
    return replace(
        latencies[0],
        base_s=fmean(latency.base_s for latency in latencies),
        per_prefill_token_s=fmean(latency.per_prefill_token_s for latency in latencies),
        per_prefill_pair_s=fmean(latency.per_prefill_pair_s for latency in latencies),
        per_decode_s=fmean(latency.per_decode_s for latency in latencies),
        per_context_token_s=fmean(latency.per_context_token_s for latency in latencies),
    )
