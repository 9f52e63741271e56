"""The emulation of a GPU on the CPU: what it computes, and what it finds wrong."""

from collections.abc import Callable
from ctypes import CDLL, c_char_p, c_uint, c_void_p
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from torch import Tensor

from headway.kernels.cuda.host import SHIM, build_host

Run = Callable[..., Tensor]


@pytest.fixture(scope="module")
def library(build_directory: Path) -> CDLL:
    with FileLock(build_directory / "probe-lock"):
        probe = Path(__file__).with_name("probe.cu").read_text()
        texts = {"probe": probe, "library": '#include "library.cu"\n', "shim": SHIM}
        library = CDLL(str(build_host(build_directory, texts=texts)))
    library.headway_error_text.restype = c_char_p
    return library


@pytest.fixture
def run(library: CDLL) -> Run:
    def run(name: str, given: Tensor, out: Tensor, *, blocks: int = 1, threads: int = 32) -> Tensor:
        """Raises RuntimeError with the emulation's words where it found something wrong."""
        operands = c_void_p(given.data_ptr()), c_void_p(out.data_ptr()), c_uint(blocks), c_uint(threads)
        if library[name](*operands):
            raise RuntimeError(library.headway_error_text(-1).decode())
        return out

    return run


def test_lanes_exchange_numbers(run: Run) -> None:
    given = torch.randn(64)
    out = run("sums_over_lanes", given, torch.empty(64), threads=64)
    torch.testing.assert_close(out, given.view(2, 32).sum(dim=1).repeat_interleave(32), rtol=1e-5, atol=1e-5)


def test_lanes_hand_on_wide_numbers(run: Run) -> None:
    given = torch.randint(1 << 50, (64,))
    out = run("sums_up_to_each_lane", given, torch.empty_like(given), threads=64)
    assert torch.equal(out, given.view(2, 32).cumsum(dim=1).flatten())


@pytest.mark.parametrize("schedule", [0, 1, 2, 3])
@pytest.mark.parametrize("threads", [1, 31, 100, 256])
def test_a_barrier_separates_writers_from_readers(library: CDLL, run: Run, threads: int, schedule: int) -> None:
    library.headway_set_schedule(schedule)
    given = torch.arange(threads, dtype=torch.int32)
    assert torch.equal(run("reverses_a_block", given, torch.empty_like(given), threads=threads), given.flip(0))
    library.headway_set_schedule(0)


def test_votes_and_atomics(run: Run) -> None:
    given = torch.randint(0, 2, (96,), dtype=torch.int32)
    counts = run("counts_votes", given, torch.zeros(2, dtype=torch.int32), threads=96)
    assert counts.tolist() == [int(given.sum()), 95]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_matrix_products(run: Run, dtype: torch.dtype) -> None:
    given = torch.randn(24, 16).to(dtype)
    out = run(f"multiplies_{str(dtype).removeprefix('torch.')}", given, torch.empty(16, 8))
    torch.testing.assert_close(out, given[:16].float() @ given[16:].float().T, rtol=1e-5, atol=1e-5)


def test_transposed_matrices(run: Run) -> None:
    given = torch.randint(0, 1 << 15, (4, 8, 8), dtype=torch.int16)
    out = run("transposes_matrices", given, torch.empty(4 * 32, dtype=torch.int32))
    assert torch.equal(out.view(torch.int16).view(4, 8, 8), given.mT)


def test_a_matrix_in_registers_is_transposed(run: Run) -> None:
    given = torch.randint(0, 1 << 15, (8, 8), dtype=torch.int16)
    out = run("transposes_a_matrix", given, torch.empty(32, dtype=torch.int32))
    assert torch.equal(out.view(torch.int16).view(8, 8), given.mT)


def test_bytes_in_the_middle_change_places(run: Run) -> None:
    given = torch.randint(0, 256, (32, 4), dtype=torch.uint8)
    assert torch.equal(run("swaps_middles", given, torch.empty_like(given)), given[:, [0, 2, 1, 3]])


def test_a_copy_arrives_when_it_is_waited_for(run: Run) -> None:
    given = torch.arange(1.0, 9.0)
    out = run("copies_in_time", given, torch.zeros(8), threads=2)
    assert out[[0, 4]].isnan().all()
    assert out[1:4].tolist() == [2, 3, 4]
    assert out[5:].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("name", "threads", "message"),
    [
        ("leaves_a_thread_behind", 64, "waits at __syncthreads for threads that never come; thread 3 has returned"),
        ("meets_at_two_barriers", 32, "waits at __syncthreads for threads that never come; thread"),
        ("shuffles_without_a_lane", 32, "waits at __shfl_xor_sync for threads that never come; thread 31 has returned"),
        ("shuffles_from_outside_the_mask", 32, "a shuffle reads from a lane that takes no part"),
        ("votes_with_a_foreign_mask", 32, "the lane is not in the mask that it gives"),
        ("writes_behind_shared_memory", 1, "a CTA wrote outside its shared memory, at byte 2048 of 2048"),
        ("writes_before_shared_memory", 1, "a CTA wrote outside its shared memory, at byte -1 of 2048"),
        ("copies_out_of_shared_memory", 1, "an asynchronous copy goes outside shared memory"),
        ("loads_from_the_same_banks", 32, "rows of a matrix lie in the same banks"),
        ("copies_to_a_crooked_place", 1, "an asynchronous copy is not aligned to its size"),
        ("loads_from_a_crooked_place", 1, "an access of several numbers is not aligned to 16 bytes"),
        ("stores_to_a_crooked_place", 1, "an access of several numbers is not aligned to 8 bytes"),
    ],
)
def test_what_a_gpu_leaves_undefined_is_an_error(run: Run, name: str, threads: int, message: str) -> None:
    with pytest.raises(RuntimeError, match=message) as error:
        run(name, torch.full((16,), 3, dtype=torch.int32), torch.zeros(64), threads=threads)
    assert "probe.cu" in str(error.value) or "shared memory, at" in str(error.value)


@pytest.mark.parametrize(
    ("blocks", "threads", "message"),
    [
        (0, 32, r"a grid of \(0, 1, 1\) must have 1 to \(2147483647, 65535, 65535\)"),
        (1, 1025, r"a CTA of \(1025, 1, 1\) must have 1 to \(1024, 1024, 64\)"),
    ],
)
def test_what_a_gpu_does_not_launch_is_an_error(run: Run, blocks: int, threads: int, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        run("meets_at_two_barriers", torch.zeros(1), torch.zeros(1), blocks=blocks, threads=threads)


def test_after_an_error_the_next_launch_is_sound(run: Run) -> None:
    with pytest.raises(RuntimeError):
        run("leaves_a_thread_behind", torch.tensor([0], dtype=torch.int32), torch.zeros(1), threads=64)
    given = torch.arange(64, dtype=torch.int32)
    assert torch.equal(run("reverses_a_block", given, torch.empty_like(given), threads=64), given.flip(0))


NARROW = [torch.float16, torch.bfloat16, torch.float8_e4m3fn]


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_every_number_of_a_format_is_read_exactly(run: Run, dtype: torch.dtype) -> None:
    count = 1 << 8 * dtype.itemsize
    given = torch.arange(count, dtype=torch.int32).to({1: torch.uint8, 2: torch.uint16}[dtype.itemsize]).view(dtype)
    out = run(
        f"widens_{str(dtype).removeprefix('torch.')}", given, torch.empty(count), blocks=count // 256, threads=256
    )
    torch.testing.assert_close(out, given.float(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_numbers_are_rounded_to_nearest_even(run: Run, dtype: torch.dtype) -> None:
    bits = torch.randint(-(1 << 31), 1 << 31, (1 << 14,)).to(torch.int32)
    near_ties = torch.randint(0, 1 << 8 * dtype.itemsize, (1 << 14,), dtype=torch.int64)
    near_ties = near_ties.to({1: torch.uint8, 2: torch.uint16}[dtype.itemsize]).view(dtype).float()
    half_unit = torch.nextafter(near_ties.to(dtype).float(), torch.tensor(torch.inf))
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e-45, 3e38, 65519.9, 65520.0])
    ties = (near_ties + near_ties.roll(1)) / 2
    given = torch.cat((bits.view(torch.float32), near_ties, half_unit, ties, special))
    given = torch.cat((given, given.new_zeros(-len(given) % 256)))
    expected = given
    if dtype is torch.float8_e4m3fn:
        expected = given.clamp(-448, 448)
    out = torch.empty(len(given), dtype=dtype)
    run(f"rounds_{str(dtype).removeprefix('torch.')}", given, out, blocks=len(given) // 256, threads=256)
    torch.testing.assert_close(out.float(), expected.to(dtype).float(), rtol=0, atol=0, equal_nan=True)
    is_number = ~out.float().isnan()
    assert torch.equal(out.float().signbit()[is_number], given.signbit()[is_number])
