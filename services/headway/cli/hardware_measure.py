"""Measuring hardware, with a bar: that of this machine, or through the profiler that of a stack's workers."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from headway.cli.private_store import store_of
from headway.cli.profiler_link import ProfilerLink, profiler_link
from headway.cli.supervisor.supervisor import NAMESPACE
from headway.client.stack import default_state_dir
from headway.core.codec import from_document, to_document
from headway.core.errors import NotFoundError, UnavailableError
from headway.core.hardware.calibration import HardwareProgress, HardwareRequest, HardwareWanted
from headway.core.hardware.profile import HardwareProfile
from headway.core.timing import check_share
from headway.rpc.child import call_child
from headway.rpc.convert import from_pb, to_pb
from headway.v1 import profiler_pb2

HARDWARE_MODULE = "headway.profiler.hardware"
_DEADLINE_S = 4 * 3600.0
_AGAIN_AFTER_S = 0.5
_MAX_LOSSES = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersWanted:
    """Which workers of a running stack to measure, and how much of their time that may take.

    Attributes:
        worker_id: the worker whose kind of hardware is measured; empty for the newest worker's.
        share: part of its time, in (0, 1], that a worker with a model loaded gives to measuring.
    """

    worker_id: str = ""
    share: float = 0.5

    def __post_init__(self) -> None:
        check_share(self.share)


def measure_here(wanted: HardwareWanted, *, device: str, num_threads: int, state_dir: Path | None) -> HardwareProfile:
    """Measures what is missing of `wanted` on this machine, and returns the machine's stored profile."""
    with store_of(state_dir or default_state_dir()) as redis_url:
        request = HardwareRequest(
            redis_url=redis_url, namespace=NAMESPACE, wanted=wanted, device=device, num_threads=num_threads
        )
        return asyncio.run(_watch(_here(request)))


def measure_workers(wanted: HardwareWanted, workers: WorkersWanted, *, state_dir: Path | None) -> HardwareProfile:
    """Measures what is missing of `wanted` on workers of the running stack, and returns their stored profile."""
    return asyncio.run(_watch(_on_workers(wanted, workers, state_dir)))


async def _here(request: HardwareRequest) -> AsyncGenerator[HardwareProgress, None]:
    answers = call_child(HARDWARE_MODULE, to_document(request), deadline_s=_DEADLINE_S)
    async with aclosing(answers):
        async for answer in answers:
            yield from_document(HardwareProgress, answer)


async def _on_workers(
    wanted: HardwareWanted, workers: WorkersWanted, state_dir: Path | None
) -> AsyncGenerator[HardwareProgress, None]:
    """Has the profiler measure. One that is lost is waited for: it comes back and goes on from what is stored. So is a
    worker that was there when measuring began."""
    num_losses, has_begun = 0, False
    async with profiler_link(state_dir) as link:
        while True:
            try:
                async with aclosing(_ask(link, wanted, workers)) as steps:
                    async for step in steps:
                        yield step
                        num_losses, wanted, has_begun = 0, replace(wanted, fresh=False), True
            except (UnavailableError, NotFoundError) as error:
                num_losses += 1
                is_known = has_begun or isinstance(error, UnavailableError)
                if num_losses == _MAX_LOSSES or not is_known:
                    raise
                yield HardwareProgress(num_done=0, num_total=0, waits_for=error.message)
            else:
                return
            await asyncio.sleep(_AGAIN_AFTER_S)


async def _ask(
    link: ProfilerLink, wanted: HardwareWanted, workers: WorkersWanted
) -> AsyncGenerator[HardwareProgress, None]:
    request = profiler_pb2.ProfileHardwareRequest(
        wanted=to_pb(wanted, profiler_pb2.HardwareWanted), worker_id=workers.worker_id, share=workers.share
    )
    async with link.stub() as stub:
        async for response in stub.ProfileHardware(request):
            yield from_pb(response, HardwareProgress)


async def _watch(steps: AsyncGenerator[HardwareProgress, None]) -> HardwareProfile:
    profile = None
    columns = (TextColumn("{task.description:<44}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("asking the machine", total=None)
        async with aclosing(steps):
            async for step in steps:
                profile = step.profile
                bar.update(task, description=step.waits_for or step.cell or "starting")
                if step.num_total:
                    bar.update(task, completed=step.num_done, total=step.num_total)
    assert profile is not None, "a run that ends well has a profile"
    return profile
