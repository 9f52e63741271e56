"""Flags are read by megatron-core itself: its configurations, its pipeline layouts and its count of micro-batches."""

from dataclasses import replace
from typing import Any

import pytest

from headway.core.errors import FailedPreconditionError
from headway.core.exports.megatron import megatron_flags
from tests.core.exports.parsers import needs_parsers, read_all
from tests.core.exports.plans import BATCH, GPT, LLAMA, plan_of, stage
from tests.profiler.capture.zoo import captured


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Plans as megatron-core reads their flags, all in one process."""
    llama, gpt = captured(LLAMA, batch=BATCH), captured(GPT, batch=BATCH)
    stages = [
        stage(llama, data=2, tensor=2, blocks=(0, 1), zero_stage=1, recomputes=True),
        stage(llama, data=2, tensor=2, blocks=(1, 2), first_device=4, zero_stage=1, recomputes=True),
    ]
    texts = {
        "stages": megatron_flags(plan_of(llama, stages), llama),
        "sharded": megatron_flags(plan_of(gpt, [stage(gpt, data=8, zero_stage=3)]), gpt),
    }
    return read_all("read_megatron.py", texts, tmp_path_factory.mktemp("megatron"), num_devices=8)


@needs_parsers
def test_stages_and_micro_batches_are_the_plans(read: dict[str, Any]) -> None:
    found = read["stages"]
    assert found["parts"] == [["embedding", "decoder"], ["decoder", "loss"]]
    assert (found["data_parallel_size"], found["num_micro_batches"]) == (2, 4)
    assert (found["ffn_hidden_size"], found["num_query_groups"]) == (48, 2)
    assert found["recompute_granularity"] == "full"
    assert found["given"]["use_distributed_optimizer"]


@needs_parsers
def test_zero_3_is_megatron_fsdp(read: dict[str, Any]) -> None:
    found = read["sharded"]
    assert found["sharding"] == "optim_grads_params"
    assert found["given"]["position_embedding_type"] == "learned_absolute"
    assert "untie_embeddings_and_output_weights" not in found["given"]
    assert "sequence_parallel" not in found["given"]


def test_tensor_parallelism_gives_each_device_whole_heads() -> None:
    graph = captured(LLAMA, batch=BATCH)
    text = megatron_flags(plan_of(graph, [stage(graph, data=2, tensor=4)]), graph)
    assert "--tensor-model-parallel-size 2\n" in text
    assert "# - Parameters are split over 2 devices, not 4" in text
    assert "--micro-batch-size 2\n" in text


def test_what_no_degrees_can_say_is_refused_by_name() -> None:
    graph = captured(LLAMA, batch=BATCH)
    uneven = [stage(graph, data=2, blocks=(0, 1)), stage(graph, data=4, blocks=(1, 2), first_device=2)]
    with pytest.raises(FailedPreconditionError, match="the plan's have 2, 4"):
        megatron_flags(plan_of(graph, uneven), graph)
    alike = [stage(graph, data=2, blocks=(0, 1)), stage(graph, data=2, blocks=(1, 2), first_device=2)]
    beside = [replace(each, successors=()) for each in alike]
    with pytest.raises(FailedPreconditionError, match="some of the plan's 2 run side by side"):
        megatron_flags(plan_of(graph, beside), graph)
    narrow = plan_of(graph, [stage(graph, data=8, tensor=4)])
    with pytest.raises(FailedPreconditionError, match="each micro-batch of 8 examples over 16 devices"):
        megatron_flags(narrow, graph)


@pytest.mark.parametrize(
    ("name", "why"),
    [("bert-base-small", "attention to later tokens"), ("dlrm-small", "blocks in dense, sparse, top")],
)
def test_a_model_that_is_no_decoder_is_refused(name: str, why: str) -> None:
    graph = captured(name, batch=BATCH)
    plan = plan_of(captured(LLAMA, batch=BATCH), [])
    with pytest.raises(FailedPreconditionError, match=why) as raised:
        megatron_flags(plan, graph)
    assert "dtensor" in raised.value.hint
