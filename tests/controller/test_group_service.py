"""Groups of two workers under a controller. The workers are real processes of `scripted.py`."""

import asyncio
import os
import signal
from dataclasses import replace
from typing import Any

import psutil
import pytest

from headway.core.deployment import Deployment, WorkerOptions
from headway.core.errors import NotFoundError
from headway.core.plan.serving import EngineLimits
from tests.controller.stack import Control, Stack

LOADS = ["worker-0: load llama", "worker-1: load llama as rank 1"]


@pytest.fixture
def pair(deployment: Deployment) -> Deployment:
    """One model on a group of two workers."""
    return replace(deployment, workers=WorkerOptions(count=2), limits=EngineLimits(tp=2))


@pytest.fixture
def workers(process_of: Any) -> list[Any]:
    return [process_of(name, kind="worker") for name in ("worker-0", "worker-1")]


def pids(stack: Stack) -> dict[str, int]:
    return {name: stack.pid(name) for name in stack.supervisor.processes}


def num_restarts(stack: Stack) -> list[int]:
    return [process.num_restarts for process in stack.service.status().processes[1:]]


def is_renewed(stack: Stack, before: dict[str, int]) -> bool:
    """Whether everything serves again, each worker in another process."""
    return stack.service.status().ready and all(pid != before[name] for name, pid in pids(stack).items())


async def test_a_group_is_loaded_leader_first_and_restarted_whole_when_one_of_it_dies(
    controlling: Control, pair: Deployment, workers: Any, planner: None, until: Any
) -> None:
    async with controlling(pair, workers) as stack:
        service = stack.service
        seen = [service.status()]

        def ready() -> bool:
            seen.append(service.status())
            return seen[-1].ready

        await until(ready, what="readiness")
        assert await stack.events() == LOADS
        assert any("llama to load on worker-0, worker-1 (" in status.waiting_for for status in seen)
        assert [status.progress for status in seen] == sorted(status.progress for status in seen)
        assert [(w.rank, w.num_ranks) for w in seen[-1].workers] == [(0, 2), (1, 2)]

        for name, mate in (("worker-1", "worker-0"), ("worker-0", "worker-1")):
            before = pids(stack)
            stack.kill(name)
            gone = lambda pid=before[mate]: not psutil.pid_exists(pid)  # noqa: E731
            assert await until(gone, what=f"the end of {mate}") < 2.0
            assert not service.status().ready
            await until(lambda before=before: is_renewed(stack, before), what="the group again")
            assert await stack.events() == LOADS
            assert service.fault() is None
        assert num_restarts(stack) == [2, 2]

        await service.shutdown(grace_s=1.0)
        assert await stack.events() == ["worker-0: drain llama"]


async def test_a_stopped_mate_of_a_dead_worker_is_ended_too(
    controlling: Control, pair: Deployment, workers: Any, planner: None, until: Any
) -> None:
    async with controlling(pair, workers) as stack:
        await until(lambda: stack.service.status().ready, what="readiness")
        before = pids(stack)
        os.kill(before["worker-1"], signal.SIGSTOP)
        await asyncio.sleep(4.0)  # its lease has lapsed
        assert pids(stack) == before, "a worker that was stopped for a moment may go on"
        stack.kill("worker-0")
        await until(lambda: is_renewed(stack, before), what="the group again")


async def test_the_next_controller_adopts_a_group_that_runs_and_ends_one_that_has_lost_a_worker(
    controlling: Control, pair: Deployment, workers: Any, planner: None, until: Any
) -> None:
    async with controlling(pair, workers) as first:
        await until(lambda: first.service.status().ready, what="readiness")
        before = pids(first)
        await first.events()

    async with controlling(pair, workers) as second:
        await until(lambda: second.service.status().ready, what="adoption", timeout_s=2.0)
        await asyncio.sleep(1.0)
        assert pids(second) == before
        assert await second.events() == []

    os.kill(before["worker-1"], signal.SIGKILL)
    async with controlling(pair, workers) as third:
        await until(lambda: is_renewed(third, before), what="the group again")
        assert await third.events() == LOADS
        await third.service.shutdown(grace_s=1.0)


async def test_a_group_whose_rank_dies_while_it_loads_is_loaded_again(
    controlling: Control, pair: Deployment, workers: Any, planner: None, until: Any, make_model: Any
) -> None:
    slow = replace(pair, models=(make_model("llama", directory="/models/rank-1-slow"),))
    async with controlling(slow, workers) as stack:

        async def is_loading() -> bool:
            return [member.state for member in await stack.membership.members("worker")] == ["loading"] * 2

        await until(is_loading, what="the load")
        before = pids(stack)
        stack.kill("worker-1")
        await until(lambda: stack.pid("worker-0") != before["worker-0"], what="the leader's end")
        await until(is_loading, what="the next load")
        assert await stack.events() == LOADS * 2
        assert stack.service.fault() is None


async def test_a_fault_that_a_rank_reports_is_the_groups_and_nobody_is_restarted(
    controlling: Control, pair: Deployment, workers: Any, planner: None, until: Any, make_model: Any
) -> None:
    broken = replace(pair, models=(make_model("llama", directory="/models/rank-1-missing"),))
    async with controlling(broken, workers) as stack:
        await until(lambda: stack.service.fault() is not None, what="the fault")
        assert isinstance(stack.service.fault(), NotFoundError)
        assert num_restarts(stack) == [0, 0]
        assert not stack.service.status().ready


async def test_a_group_falls_apart_into_lone_workers_and_comes_together_again(
    controlling: Control, pair: Deployment, workers: Any, planner: None, until: Any
) -> None:
    async with controlling(pair, workers) as stack:
        service = stack.service
        await until(lambda: service.status().ready, what="readiness")
        plan, before = await service.plan(""), pids(stack)
        await stack.events()
        together = plan.assignments[0]
        larger = replace(together, max_num_seqs=together.max_num_seqs - 1)

        changes = await service.apply(replace(plan, assignments=(larger,), plan_id=""), dry_run=False)
        assert [str(change) for change in changes] == [
            f"worker-0, worker-1: reload llama ({larger.num_blocks} blocks, tp 2, before {larger.num_blocks})"
        ]
        await until(lambda: service.status().ready, what="the reload")
        assert await stack.events() == ["worker-0: drain llama", *LOADS]
        assert pids(stack) == before, "a group that stays together needs no new processes"

        alone = await stack.plan_alone(plan)
        await service.apply(alone, dry_run=False)
        await until(lambda: is_renewed(stack, before), what="lone workers")
        assert sorted(await stack.events()) == [
            "worker-0: drain llama",
            "worker-0: load llama",
            "worker-1: load llama",
        ]
        assert [(w.rank, w.num_ranks) for w in service.status().workers] == [(0, 1), (0, 1)]

        before = pids(stack)
        await service.apply(plan, dry_run=False)
        await until(lambda: service.status().ready, what="the group again")
        assert sorted(await stack.events()) == [
            "worker-0: drain llama",
            *LOADS[:1],
            "worker-1: drain llama",
            *LOADS[1:],
        ]
        assert pids(stack) == before


async def test_stages_of_cache_shards_are_one_group_for_each_controller(
    controlling: Control, deployment: Deployment, process_of: Any, planner: None, until: Any
) -> None:
    limits = EngineLimits(cp=2, stage_layers=(1, 1), cp_ffn="tensor")
    square = replace(deployment, workers=WorkerOptions(count=4), limits=limits)
    workers = [process_of(f"worker-{rank}", kind="worker") for rank in range(4)]
    loads = [LOADS[0], *(f"worker-{rank}: load llama as rank {rank}" for rank in range(1, 4))]
    async with controlling(square, workers) as first:
        await until(lambda: first.service.status().ready, what="readiness")
        events = await first.events()
        assert (events[0], sorted(events)) == (loads[0], loads)
        plan = await first.service.plan("")
        assert {worker.machine for worker in plan.workers} == {"127.0.0.1"}
        (assignment,) = plan.assignments
        assert assignment.parallel == limits.parallel
        assert [(share.first_layer, share.num_layers) for share in assignment.ranks] == [(1, 1)] * 2 + [(0, 1)] * 2
        assert [(w.rank, w.num_ranks) for w in first.service.status().workers] == [(rank, 4) for rank in range(4)]
        before = pids(first)

    async with controlling(square, workers) as second:
        await until(lambda: second.service.status().ready, what="adoption", timeout_s=2.0)
        assert pids(second) == before
        assert await second.events() == []
        second.kill("worker-2")
        await until(lambda: is_renewed(second, before), what="the group again")
        assert sorted(await second.events()) == loads
        await second.service.shutdown(grace_s=1.0)
