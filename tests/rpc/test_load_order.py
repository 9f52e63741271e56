"""What the controller orders is what the worker reads."""

import math
from dataclasses import fields, replace
from typing import Any

import pytest

from headway.core.engine_kind import EngineKind
from headway.core.errors import InvalidArgumentError
from headway.core.latency import LatencyModel
from headway.core.load_order import DEFAULT_COLLECTIVE_TIMEOUT_S, DEFAULT_STEP_TIMEOUT_S, LoadOrder
from headway.core.parallel_config import SINGLE, ParallelConfig
from headway.rpc.convert import load_order_from_pb, load_order_to_pb
from headway.v1 import worker_pb2

LATENCY = LatencyModel(
    base_s=1e-3,
    per_prefill_token_s=2e-5,
    per_prefill_pair_s=3e-9,
    per_decode_s=4e-5,
    per_context_token_s=5e-8,
)
ORDER = LoadOrder(
    model="tiny",
    directory="/models/tiny",
    dtype="bfloat16",
    num_blocks=640,
    block_size=32,
    max_num_seqs=8,
    max_num_batched_tokens=64,
    max_model_len=256,
    enable_prefix_cache=True,
    max_num_prefill_tokens=48,
    num_host_blocks=320,
    preemption="swap",
    num_draft_tokens=3,
    quantization="int8",
    generation_config="off",
    engine=EngineKind.VLLM,
    engine_args="--enforce-eager",
    backend="openvino",
    parallel=ParallelConfig(tp=2, pp=2, stage_layers=(2, 1)),
    worker_ids=("worker-0", "worker-1", "worker-2", "worker-3"),
    group_id="group-7",
    stage_latencies=(LATENCY, LATENCY.part(0.5)),
    plan_id="plan-9",
    rank=3,
    rendezvous="127.0.0.1:4711/0/epoch",
    collective_timeout_s=2.5,
    step_timeout_s=70.5,
)


def test_every_field_of_the_message_arrives() -> None:
    request = worker_pb2.LoadModelRequest.FromString(load_order_to_pb(ORDER).SerializeToString())
    names = [field.name for field in worker_pb2.LoadModelRequest.DESCRIPTOR.fields]
    assert {descriptor.name for descriptor, _ in request.ListFields()} == set(names)
    assert {field.name for field in fields(LoadOrder)} == {*names, "memory_bytes"}
    arrived = load_order_from_pb(request)
    assert [getattr(arrived, name) for name in names] == [getattr(ORDER, name) for name in names]


def test_what_is_left_out_is_as_the_worker_has_it_by_default() -> None:
    order = load_order_from_pb(worker_pb2.LoadModelRequest(model="tiny", num_blocks=8))
    assert (order.engine, order.preemption, order.parallel) == (EngineKind.HEADWAY, "auto", SINGLE)
    assert (order.collective_timeout_s, order.step_timeout_s) == (DEFAULT_COLLECTIVE_TIMEOUT_S, DEFAULT_STEP_TIMEOUT_S)
    assert (order.max_num_prefill_tokens, order.stage_latencies, order.rank) == (None, (), 0)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"parallel": ParallelConfig(cp=0)}, "parallel.cp"),
        ({"parallel": ParallelConfig(tp=-1, pp=-1)}, "parallel.tp"),
        ({"parallel": ParallelConfig(cp=2**31 - 1)}, "worker_ids"),
        ({"rank": 4}, "rank"),
        ({"num_blocks": -64}, "num_blocks"),
        ({"num_host_blocks": -1}, "num_host_blocks"),
        ({"rank": -1}, "rank"),
        ({"collective_timeout_s": math.nan}, "collective_timeout_s"),
        ({"collective_timeout_s": math.inf}, "collective_timeout_s"),
        ({"collective_timeout_s": -1.0}, "collective_timeout_s"),
        ({"step_timeout_s": -1.0}, "step_timeout_s"),
    ],
)
def test_an_order_that_no_group_can_have_is_refused(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        load_order_from_pb(load_order_to_pb(replace(ORDER, **changes)))
    assert caught.value.field == field
