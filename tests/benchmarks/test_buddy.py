"""Buddy allocation: ranges never overlap, and whatever was split comes together again."""

import random

import pytest

from benchmarks.waste.buddy import BuddyAllocator


def test_ranges_are_powers_of_two_and_aligned() -> None:
    buddies = BuddyAllocator(64)
    for num, size in ((1, 1), (3, 4), (5, 8), (16, 16), (17, 32)):
        start = buddies.allocate(num)
        assert start is not None
        assert buddies.size_of(start) == size
        assert start % size == 0


def test_a_full_pool_gives_nothing() -> None:
    buddies = BuddyAllocator(8)
    assert buddies.allocate(5) == 0
    assert not buddies.fits(1)
    assert buddies.allocate(1) is None


def test_free_memory_in_pieces_fits_no_large_range() -> None:
    buddies = BuddyAllocator(4)
    starts = [buddies.allocate(1) for _ in range(4)]
    for start in starts[::2]:
        assert start is not None
        buddies.release(start)
    assert buddies.fits(1)
    assert not buddies.fits(2)


@pytest.mark.parametrize("size", [1, 12, 100, 981])
def test_random_traffic_never_overlaps_and_leaves_the_pool_whole(size: int) -> None:
    draw, buddies, held = random.Random(size), BuddyAllocator(size), dict[int, int]()
    for _ in range(2000):
        if held and draw.random() < 0.5:
            start = draw.choice(list(held))
            buddies.release(start)
            del held[start]
        elif (start_or_none := buddies.allocate(draw.randrange(1, size + 1))) is not None:
            held[start_or_none] = buddies.size_of(start_or_none)
        slots = [slot for start, length in held.items() for slot in range(start, start + length)]
        assert len(slots) == len(set(slots))
        assert not slots or max(slots) < size
    for start in held:
        buddies.release(start)
    largest = 1 << size.bit_length() - 1
    assert buddies.allocate(largest) == 0
