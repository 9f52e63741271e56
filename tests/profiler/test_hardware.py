"""Profiles of hardware: resumed, forgotten with their versions, and fitted. The timing process is a real one."""

from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass

import pytest

from headway.core.cluster import Hardware
from headway.core.errors import FailedPreconditionError, InvalidArgumentError, UnavailableError
from headway.core.hardware.calibration import HardwareProgress, HardwareWanted
from headway.core.hardware.cell import Cell, CellTiming
from headway.core.hardware.family import COLLECTIVES, Transport, collective_families
from headway.core.hardware.profile import Machine
from headway.profiler.hardware import hardware, own
from headway.profiler.hardware.links import fit_links
from headway.store.hardware import HardwareTimings
from headway.store.redis import Database
from headway.store.schema import HARDWARE_TIMINGS

FAMILIES = ("add", "gelu")


@pytest.fixture(autouse=True)
def fake_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "CALIBRATION_MODULE", "tests.profiler.fake_calibration")


@pytest.fixture
def timings(database: Database) -> HardwareTimings:
    return HardwareTimings(database)


async def run(timings: HardwareTimings, **options: object) -> list[HardwareProgress]:
    wanted = HardwareWanted(**{"families": FAMILIES} | options)
    calibrator = own.OwnCalibrator(device="cpu", num_threads=1)
    return [step async for step in hardware.profile_hardware(wanted, calibrator=calibrator, timings=timings)]


def timed(progress: list[HardwareProgress]) -> list[str]:
    return [each.cell for each in progress if each.cell]


async def test_every_cell_is_timed_once(timings: HardwareTimings) -> None:
    first = await run(timings)
    assert len(timed(first)) == len(set(timed(first))) == first[-1].num_total == first[-1].num_done > 0
    profile = first[-1].profile
    assert profile is not None
    assert profile.lattice("gelu").at((1 << 20,)) == pytest.approx(1e-4 + (1 << 20) * 1e-9)
    again = await run(timings)
    assert timed(again) == []
    assert again[-1].profile is not None
    assert set(again[-1].profile.timings) == set(profile.timings)
    assert len(timed(await run(timings, fresh=True))) == len(timed(first))


async def test_a_killed_measurement_loses_only_what_was_running(
    timings: HardwareTimings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_CALIBRATION", "die:5")
    with pytest.raises(UnavailableError, match="SIGKILL"):
        await run(timings)
    monkeypatch.delenv("FAKE_CALIBRATION")
    rest = await run(timings)
    assert rest[0].num_done == 5
    assert len(timed(rest)) == rest[-1].num_total - 5


async def test_another_version_of_a_library_starts_anew(
    timings: HardwareTimings, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await run(timings)
    monkeypatch.setenv("FAKE_TORCH", "3")
    assert len(timed(await run(timings))) == len(timed(first))
    assert len(await timings.machines()) == 2


async def test_a_timing_that_cannot_be_is_refused(timings: HardwareTimings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_CALIBRATION", "nan")
    with pytest.raises(InvalidArgumentError, match="add/float32/1 cannot take nan s"):
        await run(timings)


@pytest.mark.parametrize(
    "text", ["{", '{"cell": 3}', '{"cell":{"family":"add","dtype":"f","extents":[1]},"seconds":NaN}']
)
async def test_a_broken_stored_timing_is_named(timings: HardwareTimings, database: Database, text: str) -> None:
    profile = (await run(timings))[-1].profile
    assert profile is not None
    key = HARDWARE_TIMINGS.key(database.namespace, profile.profile_id)
    await database.redis.hset(key, "add/float32/1", text)
    with pytest.raises(FailedPreconditionError, match=r"add/float32/1 cannot be read.*--fresh"):
        await run(timings)
    assert (await run(timings, fresh=True))[-1].profile is not None


async def test_an_unknown_family_names_those_there_are(timings: HardwareTimings) -> None:
    with pytest.raises(InvalidArgumentError, match=r"'matmull'.*matmul"):
        await run(timings, families=("matmull",))


@dataclass(frozen=True)
class LawfulCalibrator:
    """Every cell takes what its bytes say, on a machine with so many cores and GPUs."""

    device: str
    num_gpus: int

    async def machine(self) -> Machine:
        hardware = Hardware(device=self.device, name="a device", num_threads=1, memory_bytes=1)
        return Machine(hardware=hardware, machine="here", num_cores=4, num_gpus=self.num_gpus)

    async def max_ranks(self, machine: Machine) -> Mapping[Transport, int]:
        return own.ranks_of_one(machine)

    async def time(self, cells: Iterable[Cell]) -> AsyncGenerator[CellTiming | str, None]:
        for cell in cells:
            yield CellTiming(cell=cell, seconds=2e-4 + cell.extents[-1] / 3e9)


async def links_timed(timings: HardwareTimings, wanted: HardwareWanted, *, device: str, num_gpus: int) -> set[str]:
    calibrator = LawfulCalibrator(device, num_gpus)
    steps = [step async for step in hardware.profile_hardware(wanted, calibrator=calibrator, timings=timings)]
    assert steps[-1].profile is not None
    return {f"{link.collective} {link.num_ranks}" for link in steps[-1].profile.links}


async def test_ranks_on_gpus_use_nccl_and_those_on_cpus_do_not(timings: HardwareTimings) -> None:
    wanted = HardwareWanted(max_ranks=8)
    names = {name for name, each in COLLECTIVES.items() if each.transport is Transport.NCCL}
    assert names == {f"{name}_nccl" for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")}
    on_cpus = await links_timed(timings, wanted, device="cpu", num_gpus=0)
    assert {"all_reduce 4", "all_reduce_gloo 4", "send 2"} <= on_cpus
    assert not any("nccl" in name for name in on_cpus)
    assert await links_timed(timings, wanted, device="cuda", num_gpus=1) == set()
    assert await links_timed(timings, wanted, device="cuda", num_gpus=4) == {
        f"{name} {num_ranks}" for name in names for num_ranks in ((2,) if name == "send_nccl" else (2, 4))
    }


@pytest.mark.parametrize(
    ("family", "device", "num_gpus", "max_ranks", "room"),
    [
        ("send_nccl", "cuda", 1, 2, 1),
        ("send_nccl", "cuda", 2, 1, 1),
        ("send_nccl", "cpu", 0, 2, 0),
        ("send", "cuda", 4, 2, 0),
    ],
)
async def test_a_collective_without_room_says_what_it_takes(
    timings: HardwareTimings, family: str, device: str, num_gpus: int, max_ranks: int, room: int
) -> None:
    wanted = HardwareWanted(families=(family,), max_ranks=max_ranks)
    with pytest.raises(InvalidArgumentError, match=f"'{family}' is timed among 2 .* room for {room} here.*a GPU"):
        await links_timed(timings, wanted, device=device, num_gpus=num_gpus)


def test_links_find_the_latency_and_the_rate_that_made_the_timings() -> None:
    families = collective_families([2, 4], Transport.SHARED_MEMORY) + collective_families([2, 4], Transport.LOOPBACK)
    samples = [
        CellTiming(cell=cell, seconds=2e-4 + cell.extents[1] / 3e9) for family in families for cell in family.cells()
    ]
    links = fit_links(samples)
    assert len(links) == 17
    for link in links:
        assert link.latency_s == pytest.approx(2e-4, rel=1e-6)
        assert link.bytes_per_s == pytest.approx(3e9, rel=1e-6)
        assert link.relative_error == pytest.approx(0, abs=1e-6)
        assert link.curve.at(1 << 21) == pytest.approx(2e-4 + (1 << 21) / 3e9, rel=0.06)


def test_a_collective_of_two_sizes_has_no_fit() -> None:
    cells = [Cell(family="all_reduce", dtype="float32", extents=(2, size)) for size in (1024, 4096)]
    assert fit_links([CellTiming(cell=cell, seconds=1e-4) for cell in cells]) == ()
