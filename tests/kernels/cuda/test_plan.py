"""How a launch is cut into work: every key once, enough work for all, none too long."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.kernels.cuda import DecodeRows, DecodeTable, plan_decode
from headway.kernels.cuda.plan import slots_of, work_capacity


def rows_of(*lengths: int, sliding_window: int | None = None) -> DecodeRows:
    return DecodeRows.of_lengths(np.array(lengths, dtype=np.int32), sliding_window=sliding_window)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    lengths=st.lists(st.integers(0, 70_000), max_size=40),
    num_slots=st.integers(1, 300),
    window=st.none() | st.integers(1, 5000),
)
def test_every_key_is_attended_to_once(lengths: list[int], num_slots: int, window: int | None) -> None:
    rows = rows_of(*lengths, sliding_window=window)
    plan = plan_decode(rows, num_slots=num_slots)
    assert len(plan.work) <= work_capacity(len(rows), num_slots=num_slots)
    for row, (first, end) in enumerate(zip(rows.first_keys, rows.end_keys, strict=True)):
        items = plan.work[plan.work[:, 0] == row]
        items = items[np.argsort(items[:, 2])]
        assert items[0, 2] == first
        assert items[-1, 3] == end
        assert (items[1:, 2] == items[:-1, 3]).all()
        partials = np.arange(plan.starts[row], plan.starts[row + 1])
        assert items[:, 5].tolist() == (partials.tolist() if len(items) > 1 else [-1])
        assert len(partials) == (len(items) if len(items) > 1 else 0)
    sizes = plan.work[:, 3] - plan.work[:, 2]
    assert (np.diff(sizes) <= 0).all()


def test_a_balanced_batch_that_fills_the_gpu_is_not_split() -> None:
    assert not plan_decode(rows_of(*[1024] * 33), num_slots=33).starts.any()


@pytest.mark.parametrize("lengths", [[65536, *[1024] * 31], [131072], [1024] * 34, [4096] * 7, [300] * 100])
def test_the_slots_work_about_equally_long(lengths: list[int]) -> None:
    """Taken by the slots in turn, the longest first, as CTAs are: within a quarter of the even share, and a CTA."""
    num_slots = 33
    work = plan_decode(rows_of(*lengths), num_slots=num_slots).work
    busy = np.zeros(num_slots)
    for _, _, first, end, _, _ in work:
        busy[busy.argmin()] += end - first
    assert busy.max() <= 1.25 * sum(lengths) / num_slots + 64


def test_one_short_sequence_is_split_as_far_as_it_is_worth_it() -> None:
    assert len(plan_decode(rows_of(1024), num_slots=33).work) == 16


def test_more_ctas_for_each_range_leave_fewer_slots() -> None:
    assert slots_of(264, ctas_per_range=8) == 33
    assert slots_of(4, ctas_per_range=8) == 1


def test_a_table_holds_what_was_planned_and_nothing_besides() -> None:
    table = DecodeTable.allocate(
        num_rows=4, num_heads=8, num_kv_heads=2, head_dim=64, num_ctas=16, device=torch.device("cpu")
    )
    table.load(rows_of(500, 20, 3))
    table.load(rows_of(100))
    plan = plan_decode(rows_of(100), num_slots=8)
    assert np.array_equal(table.work[: len(plan.work)].numpy(), plan.work)
    assert (table.work[len(plan.work) :] == -1).all()
    assert table.starts.tolist() == [0, *[int(plan.starts[-1])] * 4]
    with pytest.raises(ValueError, match="rows must be at most 4; they are 5"):
        table.load(rows_of(1, 1, 1, 1, 1))


def test_a_table_has_no_more_work_than_a_launch_has_ctas() -> None:
    sizes = {"num_heads": 8, "num_kv_heads": 8, "head_dim": 64, "num_ctas": 16, "device": torch.device("meta")}
    assert DecodeTable.allocate(num_rows=65535 - 8, **sizes).num_rows == 65527
    with pytest.raises(ValueError, match="num_rows must be at most 65527 with 16 CTAs; it is 65528"):
        DecodeTable.allocate(num_rows=65528, **sizes)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (([0], [0], [1, 2], [0]), r"end_keys must be int32 \[1\]; it is int32 \[2\]"),
        (([0], [3], [2], [0]), "first_keys must lie between 0 and end_keys"),
        (([0], [0], [1 << 25], [0]), "end_keys must be at most 16777216"),
    ],
)
def test_impossible_rows_are_refused(columns: tuple[list[int], ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DecodeRows(*(np.array(column, dtype=np.int32) for column in columns))


def test_a_window_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="sliding_window must be at least 1; it is 0"):
        rows_of(5, sliding_window=0)
