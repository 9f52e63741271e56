"""Plans for groups: each worker's memory, refusals that name what works, and old plans."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch

from headway.core.codec import from_document, to_document
from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.latency import LatencyModel
from headway.core.model import ExpertsSpec, ModelFamily, ModelSpec
from headway.core.parallel_config import SINGLE, ParallelConfig
from headway.core.plan.serving import Assignment, EngineLimits, ServingPlan
from headway.core.profile import Profile, profile_id
from headway.core.shard import shard_of
from headway.models.layout import Alone, Layout
from headway.models.registry import build_model
from headway.planner.certify.certificate import find_violations
from headway.planner.certify.explanation import explain
from headway.planner.serving.device_roofline import fabric_of, roofline_of
from headway.planner.serving.roofline import estimate_latency
from headway.rpc.convert import from_pb, to_pb
from headway.v1 import planner_pb2

GIB = 1024**3
EXPERTS = ExpertsSpec(num_experts=6, num_experts_per_tok=2, intermediate_size=40, shared_intermediate_size=72)
MODELS: dict[str, dict[str, Any]] = {
    "llama": {},
    "all heads, tied": {"num_kv_heads": 8, "tied_embeddings": True},
    "one KV head, odd sizes": {"num_kv_heads": 1, "vocab_size": 997, "intermediate_size": 1403},
    "three KV heads": {"num_heads": 9, "num_kv_heads": 3},
    "experts": {"experts": EXPERTS},
    "bfloat16": {"dtype": "bfloat16"},
    "opt": {"family": ModelFamily.OPT, "num_kv_heads": 8, "activation": "relu", "rope": None, "embedding_dim": 512},
    "gpt2": {
        "family": ModelFamily.GPT2,
        "num_kv_heads": 8,
        "activation": "gelu_tanh",
        "rope": None,
        "tied_embeddings": True,
    },
}


class Axis(Alone):
    """A rank's place among several, without the others."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size


@pytest.fixture
def workers(make_worker: Any) -> Any:
    return [make_worker(f"worker-{index}") for index in range(4)]


def matrix_bytes(spec: ModelSpec, parallel: ParallelConfig, rank: int) -> int:
    """What a rank's network allocates for matrices and tables; norms, biases and OPT's padding rows left out."""
    layout = Layout(shard_of(spec, parallel, rank=rank), Axis(rank, parallel.tp), Axis(rank, parallel.tp))
    network = build_model(spec, layout=layout, device=torch.device("meta"))
    parts = [part.view for parts in network.tensors().values() for part in parts]
    num_bytes = sum(view.numel() * view.element_size() for view in parts if view.dim() == 2)
    padding_rows = 2 if spec.family is ModelFamily.OPT else 0
    return num_bytes - padding_rows * spec.hidden_size * spec.dtype_bytes


@pytest.mark.parametrize(("name", "tp"), list(product(MODELS, (1, 2, 3, 4))))
def test_each_worker_has_the_bytes_that_its_network_allocates(
    name: str, tp: int, plan_for: Any, make_model: Any, workers: Any
) -> None:
    model = make_model(**MODELS[name])
    try:
        (assignment,) = plan_for([model], workers[:tp], limits=EngineLimits(tp=tp)).assignments
    except InvalidArgumentError:
        assert tp == 3 or (name, tp) == ("three KV heads", 4)
        return
    assert assignment.worker_ids == tuple(worker.worker_id for worker in workers[:tp])
    for rank, share in enumerate(assignment.shares):
        shard = shard_of(model.spec, assignment.parallel, rank=rank)
        tied_bytes = 0  # the head is packed apart from the embedding that it is tied to
        if model.spec.tied_embeddings:
            tied_bytes = len(shard.vocab) * model.spec.hidden_size * model.spec.dtype_bytes
        assert share.weight_bytes == matrix_bytes(model.spec, assignment.parallel, rank) + tied_bytes
        token_bytes = 2 * len(shard.layers) * len(shard.kv_heads) * model.spec.head_dim * model.spec.dtype_bytes
        assert share.kv_cache_bytes == assignment.num_blocks * assignment.block_size * token_bytes


@pytest.mark.parametrize("tp", [2, 4])
def test_a_group_is_planned_certified_and_sent(tp: int, plan_for: Any, make_model: Any, workers: Any) -> None:
    limits = EngineLimits(tp=tp, host_cache_bytes=GIB // 4)
    plan: ServingPlan = plan_for([make_model()], workers, limits=limits)
    assert find_violations(plan) == []
    assert len(plan.assignments) == 4 // tp
    for assignment in plan.assignments:
        assert assignment.parallel == ParallelConfig(tp=tp)
        assert assignment.worker_id == assignment.ranks[0].worker_id
        assert [(share.first_layer, share.num_layers) for share in assignment.ranks] == [(0, 8)] * tp
    assert plan.assignments_of("worker-1") == plan.assignments[:1]
    assert from_pb(to_pb(plan, planner_pb2.ServingPlan), ServingPlan) == plan


def test_the_worker_with_the_least_room_sets_the_number_of_blocks(
    plan_for: Any, make_model: Any, make_worker: Any
) -> None:
    sizes = (8 * GIB, 2 * GIB)
    workers = [
        make_worker(f"worker-{index}", memory_bytes=size, device="cuda", name="NVIDIA H100")
        for index, size in enumerate(sizes)
    ]
    limits = EngineLimits(tp=2, max_num_seqs=256)
    plan = plan_for([make_model(max_position=131_072)], workers, limits=limits)
    (assignment,) = plan.assignments
    leader, rank = assignment.ranks
    block_bytes = rank.kv_cache_bytes // assignment.num_blocks
    assert leader.kv_cache_bytes == rank.kv_cache_bytes
    assert 0 <= 2 * GIB - rank.weight_bytes - rank.reserved_bytes - rank.kv_cache_bytes < block_bytes
    assert leader.reserved_bytes > rank.reserved_bytes  # the logits
    assert find_violations(plan) == []


def test_spare_groups_serve_too_and_a_lone_worker_is_left_over(
    plan_for: Any, make_model: Any, make_worker: Any
) -> None:
    workers = [make_worker(f"worker-{index}") for index in range(7)]
    plan = plan_for([make_model("a"), make_model("b", num_layers=2)], workers, limits=EngineLimits(tp=2))
    assert [assignment.group_id for assignment in plan.assignments] == ["group-0", "group-2", "group-4"]
    text = " ".join(explain(plan))
    assert "worker-6 serves nothing: it takes 2 workers of equal hardware to make a group." in text
    assert "Spare groups went" in text


def test_groups_keep_workers_and_models_when_a_plan_is_made_again(plan_for: Any, make_model: Any, workers: Any) -> None:
    models, limits = [make_model("a"), make_model("b")], EngineLimits(tp=2)
    first: ServingPlan = plan_for(models, workers, limits=limits)
    again = plan_for(list(reversed(models)), workers, limits=limits, current=first)
    assert again.assignments == first.assignments
    alone = plan_for(models, workers, limits=EngineLimits(), current=first)
    assert all(not assignment.ranks for assignment in alone.assignments)
    assert len(alone.assignments) == 4


def test_a_split_that_a_model_does_not_allow_is_refused_with_one_that_it_does(
    plan_for: Any, make_model: Any, workers: Any
) -> None:
    model = make_model(num_heads=8, num_kv_heads=2)
    with pytest.raises(InvalidArgumentError, match="cannot be split in 3") as caught:
        plan_for([model], workers, limits=EngineLimits(tp=3))
    tp = int(caught.value.hint.split("--tp ")[1].split(",")[0])
    assert plan_for([model], workers, limits=EngineLimits(tp=tp)).assignments
    with pytest.raises(InvalidArgumentError, match="must be at least 1"):
        plan_for([model], workers, limits=EngineLimits(tp=0))
    with pytest.raises(InvalidArgumentError, match="tp 8 needs 8 workers; there are 4"):
        plan_for([model], workers, limits=EngineLimits(tp=8))


def test_a_model_too_large_for_a_worker_is_refused_with_the_split_that_fits(
    plan_for: Any, make_model: Any, make_worker: Any
) -> None:
    model = make_model(num_layers=48, hidden_size=4096, num_heads=32, num_kv_heads=32)
    workers = [make_worker(f"worker-{index}", memory_bytes=5 * GIB) for index in range(8)]
    with pytest.raises(FailedPreconditionError, match=r"fits no worker") as caught:
        plan_for([model], workers[:1])
    tp = int(caught.value.hint.split("--tp ")[1].split(")")[0])
    assert tp > 1
    assert plan_for([model], workers[:tp], limits=EngineLimits(tp=tp)).assignments
    with pytest.raises(FailedPreconditionError, match=r"fits no group of 2 workers \(tp 2\)") as caught:
        plan_for([model], workers[:2], limits=EngineLimits(tp=2))
    assert f"--tp {tp}" in caught.value.hint


def test_too_few_workers_for_the_groups_are_refused(plan_for: Any, make_model: Any, make_worker: Any) -> None:
    models = [make_model("a"), make_model("b")]
    workers = [make_worker(f"worker-{index}", num_threads=1 + index % 2) for index in range(6)]
    with pytest.raises(InvalidArgumentError, match="tp 2 needs 2 workers; there are 1"):
        plan_for(models, workers[:1], limits=EngineLimits(tp=2))
    with pytest.raises(FailedPreconditionError, match="equal hardware, and no 2 of 2 have"):
        plan_for(models, [workers[0], make_worker("worker-9", num_threads=9)], limits=EngineLimits(tp=2))


def bend_rank(rank: int, **changes: Any) -> Callable[[Assignment], Assignment]:
    def bend(assignment: Assignment) -> Assignment:
        ranks = list(assignment.ranks)
        ranks[rank] = replace(ranks[rank], **changes)
        return replace(assignment, ranks=tuple(ranks))

    return bend


FAULTS: dict[str, tuple[Callable[[Assignment], Assignment], str]] = {
    "weights too small": (bend_rank(1, weight_bytes=1 << 20), "worker-1: weight_bytes is"),
    "fewer cache bytes": (bend_rank(1, kv_cache_bytes=16), "worker-1: kv_cache_bytes is 16"),
    "too much memory": (bend_rank(1, reserved_bytes=2**40), "worker-1: the assignment takes"),
    "a worker twice": (bend_rank(1, worker_id="worker-0"), "There are 2 worker of a groups 'worker-0'"),
    "a worker of another group": (bend_rank(1, worker_id="worker-2"), "worker-2 is in two groups"),
    "a worker that is not there": (bend_rank(1, worker_id="worker-9"), "worker 'worker-9', which it does not have"),
    "another leader": (lambda a: replace(a, worker_id="worker-1"), "worker-0 for rank 0"),
    "other bytes than the leader's": (lambda a: replace(a, weight_bytes=a.weight_bytes + 1), "for rank 0"),
    "a rank too few": (lambda a: replace(a, ranks=a.ranks[:1]), "tp 2 has 2 ranks, and the assignment tells of 1"),
    "ranks without a layout": (lambda a: replace(a, parallel=SINGLE), "one worker has 1 ranks"),
    "no ranks": (lambda a: replace(a, ranks=()), "tp 2 has 2 ranks, and the assignment tells of 0"),
    "a layer too few": (bend_rank(1, num_layers=7), "have the layers 0+8, 0+7"),
    "another split of layers": (
        lambda a: bend_rank(1, num_layers=8)(bend_rank(0, num_layers=7)(a)),
        "has not the last layer",
    ),
    "no layout": (lambda a: replace(a, parallel=ParallelConfig(tp=0)), "each axis has one at least"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bent_group_is_caught(fault: str, plan_for: Any, make_model: Any, workers: Any) -> None:
    plan: ServingPlan = plan_for([make_model()], workers, limits=EngineLimits(tp=2))
    change, expected = FAULTS[fault]
    violations = find_violations(replace(plan, assignments=(change(plan.assignments[0]), *plan.assignments[1:])))
    assert any(expected in violation for violation in violations), violations


def test_a_split_that_heads_do_not_allow_is_caught(plan_for: Any, make_model: Any, workers: Any) -> None:
    plan: ServingPlan = plan_for([make_model()], workers, limits=EngineLimits(tp=4))
    few = replace(plan.models[0], spec=replace(plan.models[0].spec, num_kv_heads=8, num_heads=24))
    odd = replace(plan.models[0], spec=replace(plan.models[0].spec, num_kv_heads=3, num_heads=24))
    assert not any("cannot be split" in violation for violation in find_violations(replace(plan, models=(few,))))
    assert any("over 3 KV heads cannot be split in 4" in v for v in find_violations(replace(plan, models=(odd,))))


def test_the_explanation_tells_groups_and_the_memory_of_each_rank(plan_for: Any, make_model: Any, workers: Any) -> None:
    plan = plan_for([make_model(num_kv_heads=2)], workers, limits=EngineLimits(tp=4, host_cache_bytes=GIB // 4))
    text = " ".join(explain(plan))
    assert "llama is served by group-0:" in text
    assert "group-0 is worker-0, worker-1, worker-2, worker-3 with tp 4" in text
    assert "worker-0 leads" in text
    assert "There are 2 KV heads, so 2 workers keep the same one." in text
    assert text.count("hold llama's weights") == 4
    assert "on its 4 workers together" in text


def test_an_estimate_for_a_group_divides_the_work_and_adds_the_exchange(make_spec: Any, make_worker: Any) -> None:
    spec, hardware = make_spec(), make_worker(device="cuda", name="NVIDIA H100").hardware
    roofline, fabric = roofline_of(hardware), fabric_of(hardware)
    alone, halved = (estimate_latency(spec, hardware, ParallelConfig(tp=tp)) for tp in (1, 2))
    num_sums = 2 * spec.num_layers + 1
    assert alone == estimate_latency(spec, hardware)
    exchange_s = (num_sums - 2) * spec.hidden_size * 4 / fabric.bytes_per_s  # the last layer's are of wanted tokens
    assert halved.per_prefill_token_s == pytest.approx(alone.per_prefill_token_s / 2 + exchange_s)
    assert halved.per_prefill_pair_s == pytest.approx(alone.per_prefill_pair_s / 2)
    table_s = roofline.table_entry_s / 16  # each has the whole of the block tables
    assert halved.per_context_token_s - table_s == pytest.approx((alone.per_context_token_s - table_s) / 2)
    weights_s = spec.weight_bytes / 2 / roofline.bytes_per_s
    expected_s = roofline.step_overhead_s + weights_s + (num_sums + 1) * fabric.latency_s
    assert halved.base_s == pytest.approx(expected_s)
    large = make_spec(num_layers=32, hidden_size=4096, intermediate_size=14_336, dtype="bfloat16")
    in_one, in_two = (estimate_latency(large, hardware, ParallelConfig(tp=tp)) for tp in (1, 2))
    assert in_two.decode_s(num_decodes=1, context_tokens=512) < in_one.decode_s(num_decodes=1, context_tokens=512)


def test_a_profile_is_of_one_layout(plan_for: Any, make_model: Any, workers: Any) -> None:
    model, hardware = make_model(), workers[0].hardware
    latency = LatencyModel(
        base_s=1e-3, per_prefill_token_s=1e-4, per_prefill_pair_s=0.0, per_decode_s=1e-4, per_context_token_s=0.0
    )
    name = profile_id(model.spec, hardware, ParallelConfig(tp=2))
    profile = Profile(
        profile_id=name,
        architecture="",
        model_hash="",
        hardware=hardware,
        measurements=(),
        latency=latency,
        created_at_s=1.0,
    )
    for tp, expected in ((1, ""), (2, name), (4, "")):
        plan = plan_for([model], workers, limits=EngineLimits(tp=tp), profiles={name: profile})
        assert {assignment.prediction.profile_id for assignment in plan.assignments} == {expected}


def test_layouts_of_one_worker_have_the_profile_that_they_always_had(make_spec: Any, make_worker: Any) -> None:
    hardware = make_worker().hardware
    names = {profile_id(make_spec(), hardware, ParallelConfig(tp=tp)) for tp in (1, 2, 3)}
    assert len(names) == 3
    always = hashlib.sha256(f"{make_spec().content_hash}:{hardware.content_hash}".encode()).hexdigest()[:16]
    assert profile_id(make_spec(), hardware, SINGLE) == profile_id(make_spec(), hardware) == always


def test_a_plan_from_before_there_were_groups_is_read(plan_for: Any, make_model: Any, workers: Any) -> None:
    plan: ServingPlan = plan_for([make_model()], workers)
    document = to_document(plan)
    for assignment in document["assignments"]:
        del assignment["parallel"], assignment["ranks"]
    old = from_document(ServingPlan, document)
    assert old == plan
    assert old.assignments[0].worker_ids == ("worker-0",)
    assert find_violations(old) == []
    assert plan_for([make_model()], workers, current=old).assignments == plan.assignments
