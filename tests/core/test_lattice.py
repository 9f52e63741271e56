"""Interpolation over grids of timings, against laws that it has to meet exactly."""

import math
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.cluster import Hardware
from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.hardware.cell import Cell, CellTiming
from headway.core.hardware.family import COMPUTE, Transport, collective_families
from headway.core.hardware.lattice import Lattice
from headway.core.hardware.profile import HardwareProfile, Machine

AXES = ((1, 8, 64), (16, 256), (16, 128, 4096))
INSIDE = st.tuples(*(st.floats(axis[0], axis[-1]) for axis in AXES))
POWERS = st.tuples(*[st.floats(0, 1.5)] * 3)


def power_law(powers: tuple[float, ...], *extents: float) -> float:
    return 3e-6 * math.prod(extent**power for extent, power in zip(extents, powers, strict=True))


@given(INSIDE, POWERS)
def test_a_power_law_is_met_everywhere(extents: tuple[float, ...], powers: tuple[float, ...]) -> None:
    lattice = Lattice.through({point: power_law(powers, *point) for point in product(*AXES)})
    assert lattice.at(extents) == pytest.approx(power_law(powers, *extents))
    assert lattice.relative_error == pytest.approx(0, abs=1e-9)


@given(st.dictionaries(st.sampled_from(range(1, 100)), st.floats(1e-7, 10), min_size=1))
def test_points_are_met_and_nothing_between_is_beyond_its_neighbours(seconds: dict[int, float]) -> None:
    lattice = Lattice.through({(size,): value for size, value in seconds.items()})
    sizes = sorted(seconds)
    for low, high in pairwise(sizes):
        assert lattice.at((low,)) == pytest.approx(seconds[low])
        ends = sorted((seconds[low], seconds[high]))
        assert ends[0] * (1 - 1e-9) <= lattice.at(((low + high) / 2,)) <= ends[1] * (1 + 1e-9)


def test_beyond_the_grid_work_grows_with_the_extent_and_below_it_stays() -> None:
    lattice = Lattice.through({(10,): 1e-5, (100,): 5e-5})
    assert lattice.at((1,)) == pytest.approx(1e-5)
    assert lattice.at((400,)) == pytest.approx(20e-5)


def test_a_point_is_judged_by_its_neighbours() -> None:
    lattice = Lattice.through({(1,): 1.0, (10,): 2.0, (100,): 1.0})
    assert lattice.relative_error == pytest.approx(0.5)


@pytest.mark.parametrize("seconds", [math.nan, math.inf, 0.0, -1.0])
def test_a_timing_that_cannot_be_is_refused_with_its_cell(seconds: float) -> None:
    with pytest.raises(InvalidArgumentError, match="matmul/float32/1x2x3"):
        CellTiming(cell=Cell(family="matmul", dtype="float32", extents=(1, 2, 3)), seconds=seconds)


def test_an_incomplete_grid_is_named() -> None:
    family = next(family for family in COMPUTE if family.name == "matmul")
    cells = list(family.cells())[:-1]
    machine = Machine(
        hardware=Hardware(device="cpu", name="a CPU", num_threads=1, memory_bytes=1), machine="here", cache_bytes=0
    )
    profile = HardwareProfile(
        machine=machine, created_at_s=0.0, timings=tuple(CellTiming(cell=cell, seconds=1.0) for cell in cells)
    )
    with pytest.raises(FailedPreconditionError, match="matmul"):
        profile.lattice("matmul")


def test_cells_are_unique_and_in_complete_grids() -> None:
    collectives = [family for transport in Transport for family in collective_families([2, 4], transport)]
    cells = [cell for family in (*COMPUTE, *collectives) for cell in family.cells()]
    assert len({cell.key for cell in cells}) == len(set(cells)) == len(cells)
