"""Hardware profiles through workers whose timings are scripted, over real gRPC and a real Redis."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

import pytest

from headway.core.cluster import Hardware
from headway.core.errors import FailedPreconditionError, NotFoundError
from headway.core.hardware.calibration import HardwareProgress, HardwareWanted
from headway.core.hardware.family import Transport
from headway.core.hardware.profile import LinkProfile, Machine
from headway.profiler.hardware.on_workers import WorkersCalibrator
from headway.profiler.hardware.service import HardwareService
from headway.profiler.jobs.bench_workers import BenchWorker, BenchWorkers
from headway.profiler.machines import Machines
from headway.rpc.peers import Peers
from headway.store.documents import Documents
from headway.store.hardware import HardwareTimings
from headway.store.membership import Membership
from headway.store.redis import Database
from headway.store.schema import HARDWARE_LINKS
from tests.profiler.conftest import ScriptedWorker, serving


@pytest.fixture
async def service(database: Database) -> AsyncIterator[HardwareService]:
    async with Peers(Membership(database)).watching() as peers:
        yield HardwareService(BenchWorkers(peers), Machines(), HardwareTimings(database))


async def run(service: HardwareService, *families: str, worker_id: str = "") -> list[HardwareProgress]:
    wanted = HardwareWanted(families=families)
    return [step async for step in service.profile(wanted, worker_id=worker_id, share=0.5)]


async def test_a_busy_worker_is_waited_for_and_the_profile_is_its_machines(
    service: HardwareService, worker: ScriptedWorker
) -> None:
    worker.num_busy = 1
    steps = await run(service, "add")
    assert steps[0].waits_for == "The worker is serving requests."
    profile = steps[-1].profile
    assert profile is not None
    assert profile.machine.hardware == worker.hardware
    (summary,) = await service.list()
    assert (summary.profile_id, summary.num_timings, summary.is_stale) == (profile.profile_id, 9, False)
    assert (await service.get(profile.profile_id)).timings == profile.timings
    worker.hardware.software["torch"] = "2"
    assert (await run(service, "add"))[0].num_done == 0  # another version starts anew
    assert len(await service.list()) == 2
    current = [summary.profile_id for summary in await service.list() if not summary.is_stale]
    assert await service.forget_stale() == (1, 9)
    assert [summary.profile_id for summary in await service.list()] == current


async def test_ranks_of_a_collective_run_beside_one_worker_each(
    service: HardwareService, worker: ScriptedWorker, database: Database
) -> None:
    other = ScriptedWorker("worker-1")
    async with serving(other, database):
        profile = (await run(service, "all_reduce_gloo"))[-1].profile
    assert profile is not None
    assert [link.collective for link in profile.links] == ["all_reduce_gloo"]
    (published,) = await Documents(database, HARDWARE_LINKS, LinkProfile).all()
    assert (published.machine, published.links) == (profile.machine, profile.links)
    assert sorted(worker.places + other.places) == [(0, 2, ""), (1, 2, "here")]


async def test_between_machines_the_network_is_timed_and_between_gpus_of_one_nccl() -> None:
    hardware = ScriptedWorker().hardware
    limits = await limits_between(hardware)
    assert limits == {Transport.SHARED_MEMORY: 2, Transport.LOOPBACK: 2, Transport.NETWORK: 4}
    assert await limits_between(replace(hardware, device="cuda")) == {Transport.NCCL: 2}


async def limits_between(hardware: Hardware) -> Mapping[Transport, int]:
    """Of four workers on two machines."""

    class Hosts:
        async def workers(self) -> list[BenchWorker]:
            return [
                BenchWorker(worker_id=f"worker-{i}", endpoint=f"10.0.0.{i // 2}:1", hardware=hardware) for i in range(4)
            ]

    calibrator = WorkersCalibrator(Hosts(), Machines(), hardware=hardware, share=1.0)  # type: ignore[arg-type]
    return await calibrator.max_ranks(Machine(hardware=hardware, machine="a", num_cores=8, num_gpus=1))


async def test_what_cannot_be_measured_is_refused(service: HardwareService, worker: ScriptedWorker) -> None:
    with pytest.raises(NotFoundError, match="worker-9"):
        await run(service, worker_id="worker-9")
    with pytest.raises(NotFoundError, match="cafe"):
        await service.get("cafe")


async def test_emulated_hardware_is_refused(service: HardwareService, worker: ScriptedWorker) -> None:
    worker.hardware = replace(worker.hardware, name="H100", is_emulated=True)
    with pytest.raises(FailedPreconditionError, match="emulated"):
        await run(service)
