"""Measures a language model and BERTs on two emulated V100s, each of which has all of them."""

import asyncio
from pathlib import Path

from benchmarks.alpaserve.fidelity.cell import Cell, measure
from benchmarks.alpaserve.fidelity.patterns import patterns
from benchmarks.alpaserve.fidelity.placed import write_placement
from benchmarks.model import make_tokenizer
from deploy.demo.checkpoint import write_checkpoint
from deploy.demo.stack import headway, running_stack
from headway.cli.plan_file import read_placement_plan
from headway.core.model import ModelFamily, ModelSpec, RopeSpec
from headway.planner.placement.planning.counterfactual import instead
from headway.planner.placement.workloads.source import make_workloads

RATE = 7.0
"""Requests per second of all models, of which a fifth generate."""
SLO_SCALES = (3.0, 6.0)
WHERE = "groups=2*1x1 models=chat@0,1;bert-0@0,1;bert-1@0,1"
DEVICE = "V100-16"
_ANSWER_OVERHEAD_S = 0.005
_SPEC = ModelSpec(
    family=ModelFamily.LLAMA,
    architecture="LlamaForCausalLM",
    vocab_size=32_000,
    hidden_size=2560,
    num_layers=32,
    num_heads=20,
    num_kv_heads=20,
    head_dim=128,
    intermediate_size=8704,
    max_position=2048,
    dtype="float16",
    activation="silu",
    norm_eps=1e-5,
    rope=RopeSpec(theta=10_000.0, rotary_dim=128),
    eos_token_ids=(2,),
)
"""About three billion parameters, of which nobody reads any: about 10 ms a token."""
_MODELS = """\
models:
  - {{name: bert, count: 2, profile: bert-1.3b, share: 2}}
  - {{name: chat, generate: "{chat}", prompt: 200 cv 0.6, output: 24 cv 0.6}}
"""
_CLUSTER = f"device: {DEVICE}\nnum_devices: 2\nmemory_per_device: 14 GiB\n"


def measure_sharing(profiles: Path, directory: Path, *, duration_s: float) -> list[Cell]:
    """Measures each scale and pattern for so long; the stack's state goes into the directory.

    Raises:
        CalledProcessError: a `headway` command failed, which has said why.
        HeadwayError: a request was neither answered nor refused.
    """
    chat, placed = directory / "chat", directory / "sharing.json"
    write_checkpoint(chat, spec=_SPEC, weights={}, tokenizer=make_tokenizer(_SPEC.vocab_size), recipe={})
    models, cluster, searched = (directory / name for name in ("models.yaml", "cluster.yaml", "searched.json"))
    models.write_text(_MODELS.format(chat=chat))
    cluster.write_text(_CLUSTER)
    headway(
        *("plan", "serve", "--models", str(models), "--cluster", str(cluster), "--profiles", str(profiles)),
        *("--workload", f"gamma:rate={RATE:g},cv=3", "--slo-scale", "3", "--duration", "120", "--time-limit", "10"),
        *("--out", str(searched)),
        state_dir=directory,
    )
    plan = read_placement_plan(searched)
    workloads = make_workloads(plan.problem, {})
    placement = instead(WHERE, problem=plan.problem, placement=plan.placement, workload=workloads.searched)
    write_placement(placed, plan.problem, placement, workloads)
    options = ("--answer-overhead", f"{1000 * _ANSWER_OVERHEAD_S:g}ms", "--stage-profiles", str(profiles))
    with running_stack(directory, "--emulate", f"2x{DEVICE}", "--model", f"chat={chat}", *options) as stack:
        headway("apply", str(placed), "--yes", state_dir=directory)
        return asyncio.run(
            measure(
                plan.problem,
                placement,
                patterns=patterns(RATE, duration_s=duration_s)[:2],
                slo_scales=SLO_SCALES,
                duration_s=duration_s,
                endpoint=stack.grpc_endpoint,
                answer_overhead_s=_ANSWER_OVERHEAD_S,
            )
        )
