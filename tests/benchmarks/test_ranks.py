"""Processes of a benchmark's ranks."""

import os
import time
from multiprocessing.connection import Connection

import pytest

from benchmarks.train.ranks import told_by_ranks


def double(rank: int, pipe: Connection, base: int) -> None:
    pipe.send(base + 2 * rank)


def end_early(rank: int, pipe: Connection) -> None:
    if rank == 1:
        os._exit(3)
    time.sleep(3600)  # as a rank that waits for that one


def test_what_they_tell_comes_in_their_order() -> None:
    assert told_by_ranks(double, 3, 10) == [10, 12, 14]


def test_one_that_ends_without_a_word_is_told_and_nobody_waits() -> None:
    with pytest.raises(RuntimeError, match="Rank 1 ended"):
        told_by_ranks(end_early, 2)
