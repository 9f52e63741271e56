"""Measures two BERTs on two workers of this machine with one thread each: a worker for each, and a pipeline of both."""

import asyncio
from pathlib import Path

import torch
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import WordLevel
from transformers import BertConfig, BertModel

from benchmarks.alpaserve.fidelity.cell import Cell, measure
from benchmarks.alpaserve.fidelity.live_plan import profiled_plan
from benchmarks.alpaserve.fidelity.overhead import answer_overhead, measure_overhead
from benchmarks.alpaserve.fidelity.patterns import duration_of, patterns
from deploy.demo.stack import running_stack
from headway.core.catalogue.figure import Provenance
from headway.core.live_placement import live_placement
from headway.core.placement_problem import PlacementProblem, ProblemModel, ServingCluster, WorkloadSource
from headway.core.plan.serving import Assignment, ServingPlan
from headway.core.stage_profile import StageBatch, StageProfile, stage_profile_id

MODELS = ("red", "blue")
LAYOUTS = {"two groups": (), "one pipeline": ("--pp", "2")}
LOAD = 0.6
"""Of what the two workers can do together."""
SLO_SCALES = (1.5, 3.0, 6.0)
NUM_TOKENS = 256
TEXT = " ".join(f"w{number}" for number in range(NUM_TOKENS))
_DEVICE = "CPU"


def measure_workers(layout: str, directory: Path, *, num_requests: int, duration_s: float) -> list[Cell]:
    """Measures each scale and pattern for so many requests, and so long at least, on a stack of that layout, after the
    overhead of answers on another like it; models and state go into the directory.

    Raises:
        CalledProcessError: a `headway` command failed, which has said why.
        HeadwayError: a request was neither answered nor refused; the models were not profiled in time.
    """
    models = []
    for seed, name in enumerate(MODELS):
        write_bert(directory / name, seed=seed)
        models += ["--model", f"{name}={directory / name}"]
    flags = ("--workers", str(len(MODELS)), "--threads", "1", "--max-num-seqs", "1", *LAYOUTS[layout], *models)
    with running_stack(directory / "state", *flags) as stack:
        overhead_s = asyncio.run(_measure_overhead(stack.grpc_endpoint))
    with running_stack(directory / "state", *flags, *answer_overhead(overhead_s)) as stack:
        return asyncio.run(
            _measure(stack.grpc_endpoint, num_requests=num_requests, duration_s=duration_s, overhead_s=overhead_s)
        )


def write_bert(directory: Path, *, seed: int) -> None:
    """12 layers, 1024 wide, random weights; its words are those of `TEXT`. So slow that what client and services take
    of the same processor for each answer matters less."""
    directory.mkdir(parents=True)
    words = {word: number for number, word in enumerate(["[PAD]", "[UNK]", *TEXT.split()])}
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=1024,
        num_hidden_layers=12,
        num_attention_heads=16,
        intermediate_size=4096,
        max_position_embeddings=2 * NUM_TOKENS,
    )
    BertModel(config).save_pretrained(directory)
    tokenizer = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(directory / "tokenizer.json"))


def problem_of(plan: ServingPlan) -> PlacementProblem:
    """The placement problem with the latencies that the stack itself has of its models."""
    assignments = {each.model: each for each in plan.assignments}
    return PlacementProblem(
        models=tuple(ProblemModel(name=name, architecture=name) for name in MODELS),
        profiles=tuple(_profile(each) for each in assignments.values()),
        cluster=ServingCluster(device=_DEVICE, num_devices=2, devices_per_node=2, memory_bytes=2**33),
        workload=WorkloadSource(spec="poisson:rate=1"),
    )


def _profile(assignment: Assignment) -> StageProfile:
    parallel = assignment.parallel
    stages = tuple(stage.one_pass_s([NUM_TOKENS]) for stage in assignment.pipeline_latencies)
    return StageProfile(
        profile_id=stage_profile_id(assignment.model, _DEVICE, pp=parallel.pp, op=parallel.tp),
        model=assignment.model,
        hardware=_DEVICE,
        pp=parallel.pp,
        op=parallel.tp,
        weight_bytes=(assignment.weight_bytes,) * parallel.pp,
        batches=(StageBatch(batch_size=1, stage_latency_s=stages, activation_bytes=(0,) * parallel.pp),),
        source="the running stack",
        provenance=Provenance.MEASURED,
        created_at_s=0.0,
    )


async def _measure_overhead(endpoint: str) -> float:
    plan = await profiled_plan(endpoint)
    placement = live_placement(plan, MODELS)
    num_together = len(MODELS) * plan.assignments[0].parallel.pp  # enough to keep every stage busy
    return await measure_overhead(problem_of(plan), placement, endpoint=endpoint, text=TEXT, num_together=num_together)


async def _measure(endpoint: str, *, num_requests: int, duration_s: float, overhead_s: float) -> list[Cell]:
    plan = await profiled_plan(endpoint)
    problem = problem_of(plan)
    latency_s = max(problem.latency_s(model) for model in problem.models)
    print(f"\nan answer alone takes {latency_s * 1000:.0f} ms", flush=True)
    rate = LOAD * len(MODELS) / latency_s
    duration_s = duration_of(rate, num_requests=num_requests, at_least_s=duration_s)
    return await measure(
        problem,
        live_placement(plan, MODELS),
        patterns=patterns(rate, duration_s=duration_s),
        slo_scales=SLO_SCALES,
        duration_s=duration_s,
        endpoint=endpoint,
        text=TEXT,
        answer_overhead_s=overhead_s,
    )
