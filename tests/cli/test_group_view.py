"""What people are shown of groups of several workers."""

import io
from collections.abc import Callable
from dataclasses import replace

import pytest
from rich.console import Console, RenderableType

from headway.cli.plan_view import plan_view
from headway.cli.status_view import status_view
from headway.client.status import ClusterStatus, ControllerStatus, FleetStatus, GroupStatus, WorkerStatus
from headway.core.latency import LatencyModel
from headway.core.parallel_config import ParallelConfig
from headway.core.plan.serving import Assignment, ModelDeployment, Prediction, RankShare, ServingPlan
from tests.specs import llama_spec

MIB = 1 << 20
LATENCY = LatencyModel(
    base_s=1e-3, per_prefill_token_s=1e-5, per_prefill_pair_s=0.0, per_decode_s=1e-5, per_context_token_s=0.0
)


def share(worker_id: str, *, reserved_bytes: int) -> RankShare:
    return RankShare(
        worker_id=worker_id,
        weight_bytes=3 * MIB,
        kv_cache_bytes=16 * MIB,
        reserved_bytes=reserved_bytes,
        num_layers=2,
    )


@pytest.fixture
def plan() -> ServingPlan:
    ranks = (share("worker-0", reserved_bytes=5 * MIB), share("worker-1", reserved_bytes=4 * MIB))
    assignment = Assignment(
        group_id="group-0",
        worker_id="worker-0",
        model="tiny",
        weight_bytes=3 * MIB,
        kv_cache_bytes=16 * MIB,
        reserved_bytes=5 * MIB,
        num_blocks=1024,
        block_size=16,
        max_num_seqs=64,
        max_num_batched_tokens=512,
        max_model_len=1024,
        enable_prefix_cache=True,
        prediction=Prediction(ttft_s=0.02, tpot_s=0.002, tpot_loaded_s=0.01, output_tokens_per_s=500, latency=LATENCY),
        parallel=ParallelConfig(tp=2),
        ranks=ranks,
    )
    return ServingPlan(plan_id="plan-1", created_at_s=1.0, models=(), workers=(), assignments=(assignment,))


@pytest.fixture
def shown() -> Callable[[RenderableType], str]:
    def show(view: RenderableType) -> str:
        file = io.StringIO()
        Console(file=file, width=160).print(view)
        return " ".join(file.getvalue().split())

    return show


def test_a_plan_tells_the_group_and_the_memory_of_each_rank(
    plan: ServingPlan, shown: Callable[[RenderableType], str]
) -> None:
    text = shown(plan_view(plan))
    assert "on group-0, tp 2: worker-0, worker-1; the first leads" in text
    assert "memory of worker-0 weights 3.0 MiB, KV cache 16.0 MiB (1024 blocks of 16 tokens), reserved 5.0 MiB" in text
    assert "memory of worker-1 weights 3.0 MiB, KV cache 16.0 MiB (1024 blocks of 16 tokens), reserved 4.0 MiB" in text


@pytest.fixture
def staged(plan: ServingPlan) -> ServingPlan:
    """The same on two stages of two cache shards."""
    ranks = tuple(
        replace(share(f"worker-{rank}", reserved_bytes=5 * MIB), first_layer=first, num_layers=size)
        for rank, (first, size) in enumerate([(3, 2), (3, 2), (0, 3), (0, 3)])
    )
    (assignment,) = plan.assignments
    staged = replace(assignment, parallel=ParallelConfig(pp=2, cp=2), ranks=ranks)
    return replace(plan, assignments=(staged,))


def test_a_plan_tells_the_layers_and_blocks_of_each_rank(
    staged: ServingPlan, shown: Callable[[RenderableType], str]
) -> None:
    text = shown(plan_view(staged))
    assert "on group-0, pp 2 x cp 2: worker-0, worker-1, worker-2, worker-3; the first leads" in text
    assert (
        "memory of worker-1 layers 3-4, cache shard 1 of 2: weights 3.0 MiB, KV cache 16.0 MiB "
        "(512 of 1024 blocks of 16 tokens), reserved 5.0 MiB"
    ) in text
    assert "memory of worker-2 layers 0-2, cache shard 0 of 2: weights" in text


def test_status_tells_the_layout_and_what_each_rank_has(
    staged: ServingPlan, shown: Callable[[RenderableType], str]
) -> None:
    workers = tuple(
        WorkerStatus(worker_id=f"worker-{rank}", group_id="group-0", model="tiny", state="rank", rank=rank, num_ranks=4)
        for rank in range(4)
    )
    status = ClusterStatus(controller=ControllerStatus(workers=workers), plan=with_model(staged))
    text = shown(status_view(status, now_s=1.0))
    assert "tiny generate 1 pp 2 x cp 2 1024" in text
    assert "worker-0 tiny group-0 (rank 0 of 4, layers 3-4, cache shard 0 of 2) rank" in text
    assert "worker-3 tiny group-0 (rank 3 of 4, layers 0-2, cache shard 1 of 2) rank" in text
    moved = tuple(replace(worker, group_id="group-9") for worker in workers)
    text = shown(status_view(replace(status, controller=ControllerStatus(workers=moved)), now_s=1.0))
    assert "worker-0 tiny group-9 (rank 0 of 4) rank" in text  # the plan is another one already


def with_model(plan: ServingPlan) -> ServingPlan:
    spec = llama_spec(hidden_size=16, num_layers=5, num_kv_heads=4, head_dim=4, intermediate_size=32)
    return replace(plan, models=(ModelDeployment(name="tiny", directory="/models/tiny", spec=spec),))


def test_status_tells_each_workers_rank_and_the_load_of_the_leader(
    plan: ServingPlan, shown: Callable[[RenderableType], str]
) -> None:
    workers = (
        WorkerStatus(worker_id="worker-0", group_id="group-0", model="tiny", state="ready", rank=0, num_ranks=2),
        WorkerStatus(worker_id="worker-1", group_id="group-0", model="tiny", state="rank", rank=1, num_ranks=2),
        WorkerStatus(worker_id="worker-2", group_id="group-2", model="other", state="ready"),
    )
    load = GroupStatus(
        group_id="group-0",
        worker_id="worker-0",
        endpoint="",
        model="tiny",
        state="ready",
        num_running=3,
        num_blocks=1024,
        num_free_blocks=512,
    )
    status = ClusterStatus(controller=ControllerStatus(workers=workers), fleet=FleetStatus(groups=(load,)), plan=plan)
    text = shown(status_view(status, now_s=1.0))
    assert "worker-0 tiny group-0 (rank 0 of 2) ready 3 0 50% of 1024" in text
    assert "worker-1 tiny group-0 (rank 1 of 2) rank - - -" in text
    assert "worker-2 other group-2 ready" in text
