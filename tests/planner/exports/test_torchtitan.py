"""Job files are read by torchtitan itself, which cuts a decoder of its own as they say."""

from pathlib import Path
from typing import Any

from headway.core.graph import Graph
from headway.core.plan.training import TrainingPlan
from headway.planner.exports.torchtitan import torchtitan_job
from tests.planner.exports.parsers import needs_parsers, read_with
from tests.planner.exports.plans import BATCH, LLAMA, plan_of, searched, stage
from tests.profiler.capture.zoo import captured

_SIZES = ("2", "32", "4", "2", "64")


def read(plan: TrainingPlan, graph: Graph, folder: Path, num_devices: int) -> Any:
    path = folder / "job.toml"
    path.write_text(torchtitan_job(plan, graph))
    return read_with("read_torchtitan.py", str(path), str(num_devices), *_SIZES)


@needs_parsers
def test_stages_are_cut_where_the_plan_cuts_them(tmp_path: Path) -> None:
    graph = captured(LLAMA, batch=BATCH)
    stages = [
        stage(graph, data=2, tensor=2, blocks=(0, 1), zero_stage=3),
        stage(graph, data=2, tensor=2, blocks=(1, 2), first_device=4, zero_stage=3),
    ]
    job = read(plan_of(graph, stages), graph, tmp_path, 8)
    first, last = job["parts"]
    assert {name.split(".")[0] for name in first["parameters"]} == {"tok_embeddings", "layers"}
    assert all(name.startswith("layers.0.") for name in first["parameters"] if name.startswith("layers"))
    assert {name.split(".")[0] for name in last["parameters"]} == {"layers", "norm", "output"}
    assert all(name.startswith("layers.1.") for name in last["parameters"] if name.startswith("layers"))
    assert sorted(first["parameters"] + last["parameters"]) == sorted(job["parameters"])
    assert (first["schedule"], first["num_micro_batches"]) == ("Schedule1F1B", 4)


@needs_parsers
def test_degrees_and_batches_are_the_plans(tmp_path: Path) -> None:
    graph = captured(LLAMA, batch=BATCH)
    plan = plan_of(graph, [stage(graph, data=4, tensor=2, zero_stage=3, recomputes=True)])
    job = read(plan, graph, tmp_path, 8)
    each = job["parallelism"]
    assert (each["data_parallel_shard_degree"], each["tensor_parallel_degree"]) == (4, 2)
    assert each["fsdp_reshard_after_forward"] == "always"
    assert (job["training"]["local_batch_size"], job["training"]["global_batch_size"]) == (2, 32)
    assert (job["training"]["mixed_precision_param"], job["training"]["dtype"]) == ("bfloat16", "float32")
    assert job["training"]["seq_len"] == 16
    assert job["activation_checkpoint"] == "full"


@needs_parsers
def test_a_searched_plan_is_read(tmp_path: Path) -> None:
    graph, plan = searched(LLAMA, num_stages=1)
    job = read(plan, graph, tmp_path, 8)
    assert job["parallelism"]["data_parallel_replicate_degree"] * job["parallelism"]["data_parallel_shard_degree"] == 8
    assert job["training"]["global_batch_size"] == plan.batch
