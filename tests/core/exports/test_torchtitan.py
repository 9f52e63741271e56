"""Job files are read by torchtitan itself, which cuts a decoder of its own as they say."""

from typing import Any

import pytest

from headway.core.errors import FailedPreconditionError
from headway.core.exports.torchtitan import torchtitan_job
from tests.core.exports.parsers import needs_parsers, read_all
from tests.core.exports.plans import BATCH, LLAMA, plan_of, searched, stage
from tests.profiler.capture.zoo import captured

_SIZES = ("2", "32", "4", "2", "64")


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Plans as torchtitan reads their job files, all in one process."""
    graph = captured(LLAMA, batch=BATCH)
    stages = [
        stage(graph, data=2, tensor=2, blocks=(0, 1), zero_stage=3),
        stage(graph, data=2, tensor=2, blocks=(1, 2), first_device=4, zero_stage=3),
    ]
    plans = {
        "stages": plan_of(graph, stages),
        "one": plan_of(graph, [stage(graph, data=4, tensor=2, zero_stage=3, recomputes=True)]),
        "replicated": plan_of(graph, [stage(graph, data=8)]),
        "searched": searched(LLAMA, num_stages=1)[1],
    }
    texts = {name: torchtitan_job(plan, graph) for name, plan in plans.items()}
    return read_all("read_torchtitan.py", texts, tmp_path_factory.mktemp("torchtitan"), *_SIZES, num_devices=8)


@needs_parsers
def test_stages_are_cut_where_the_plan_cuts_them(read: dict[str, Any]) -> None:
    first, last = read["stages"]["parts"]
    assert {name.split(".")[0] for name in first["parameters"]} == {"tok_embeddings", "layers"}
    assert all(name.startswith("layers.0.") for name in first["parameters"] if name.startswith("layers"))
    assert {name.split(".")[0] for name in last["parameters"]} == {"layers", "norm", "output"}
    assert all(name.startswith("layers.1.") for name in last["parameters"] if name.startswith("layers"))
    assert sorted(first["parameters"] + last["parameters"]) == sorted(read["stages"]["parameters"])
    assert (first["schedule"], first["num_micro_batches"]) == ("Schedule1F1B", 4)


@needs_parsers
def test_degrees_and_batches_are_the_plans(read: dict[str, Any]) -> None:
    job = read["one"]
    degrees, training = job["parallelism"], job["training"]
    assert (degrees["data_parallel_shard_degree"], degrees["tensor_parallel_degree"]) == (4, 2)
    assert degrees["fsdp_reshard_after_forward"] == "always"
    assert (training["local_batch_size"], training["global_batch_size"], training["seq_len"]) == (2, 32, 16)
    assert (training["mixed_precision_param"], training["dtype"]) == ("bfloat16", "float32")
    assert job["activation_checkpoint"] == "full"


@needs_parsers
def test_replicas_are_no_shards(read: dict[str, Any]) -> None:
    degrees = read["replicated"]["parallelism"]
    assert (degrees["data_parallel_replicate_degree"], degrees["data_parallel_shard_degree"]) == (8, 1)


@needs_parsers
def test_a_searched_plan_is_read(read: dict[str, Any]) -> None:
    degrees = read["searched"]["parallelism"]
    assert degrees["data_parallel_replicate_degree"] * degrees["data_parallel_shard_degree"] == 8
    assert read["searched"]["training"]["global_batch_size"] == 32


def test_what_is_not_the_plan_is_said() -> None:
    graph = captured(LLAMA, batch=BATCH)
    stages = [
        stage(graph, data=1, tensor=4, blocks=(0, 1), recomputes=True),
        stage(graph, data=1, tensor=4, blocks=(1, 2), first_device=4, zero_stage=3),
    ]
    text = torchtitan_job(plan_of(graph, stages, precision="float16", num_micro_batches=1, batch=BATCH), graph)
    for note in (
        "Parameters are split over 2 devices, not 4: torchtitan gives each device whole heads",
        "All parameters are in ZeRO stage 3; in the plan some are in 0",
        "All stages compute their forward pass again; in the plan only stages 0 do",
        "Computes in bfloat16, not float16",
        "The schedule is GPipe",
        "Set the flavor to one of 2 layers",
    ):
        assert f"# - {note}" in text
    assert 'mode = "full"' in text


def test_a_stage_without_a_whole_block_is_refused() -> None:
    graph = captured(LLAMA, batch=BATCH)
    blocks = ((0, 1), (2, 2), (1, 2))
    stages = [stage(graph, data=2, blocks=each, first_device=2 * number) for number, each in enumerate(blocks)]
    with pytest.raises(FailedPreconditionError, match="stage 1 of the plan has none"):
        torchtitan_job(plan_of(graph, stages), graph)
