"""The grid fits whatever worker it is for."""

from hypothesis import given
from hypothesis import strategies as st

from headway.profiler.grid import Point, WorkerLimits, choose_grid, fits


def make_limits(**changes: int) -> WorkerLimits:
    usual = {
        "max_num_seqs": 128,
        "max_num_batched_tokens": 512,
        "max_model_len": 2048,
        "num_blocks": 4096,
        "block_size": 16,
    }
    return WorkerLimits(**(usual | changes))


@given(
    st.builds(
        WorkerLimits,
        max_num_seqs=st.integers(1, 512),
        max_num_batched_tokens=st.integers(1, 16384),
        max_model_len=st.integers(2, 131072),
        num_blocks=st.integers(1, 100_000),
        block_size=st.sampled_from([1, 8, 16, 64]),
    )
)
def test_every_point_fits_and_none_is_measured_twice(limits: WorkerLimits) -> None:
    grid = choose_grid(limits)
    assert grid.fitted
    assert all(fits(point, limits) for point in grid.points)
    assert len(set(grid.points)) == len(grid.points)
    assert all(point.prefill_tokens or point.num_decodes for point in grid.points)


def test_an_encoder_is_measured_at_single_sequences_of_many_lengths() -> None:
    grid = choose_grid(make_limits(num_blocks=0, max_model_len=512))
    assert len(grid.fitted) >= 5
    assert grid.held_out
    assert all(1 <= point.prefill_tokens <= 512 for point in grid.points)
    assert not any(point.num_decodes or point.context_tokens for point in grid.points)
    assert choose_grid(make_limits(num_blocks=0, max_model_len=2)).fitted


def test_a_usual_worker_is_measured_at_a_handful_of_points() -> None:
    grid = choose_grid(make_limits())
    assert 12 <= len(grid.points) <= 20
    assert len(grid.held_out) >= 4


def test_the_grid_spans_prefills_decodes_and_both() -> None:
    grid = choose_grid(make_limits())
    assert {(point.prefill_tokens > 0, point.num_decodes > 0) for point in grid.fitted} == {
        (True, False),
        (False, True),
        (True, True),
    }


def test_a_small_pool_shrinks_the_points_instead_of_dropping_them() -> None:
    grid = choose_grid(make_limits(num_blocks=16, max_model_len=256))
    assert len(grid.fitted) >= 5


def test_a_step_with_more_sequences_than_the_engine_runs_does_not_fit() -> None:
    limits = make_limits(max_num_seqs=8)
    assert fits(Point(0, 8, 16), limits)
    assert not fits(Point(16, 8, 16), limits)


def test_a_model_without_blocks_takes_a_prompt_and_nothing_else() -> None:
    limits = WorkerLimits(max_num_seqs=4, max_num_batched_tokens=64, max_model_len=128, num_blocks=0, block_size=0)
    assert fits(Point(128, 0, 0), limits)
    assert not any(fits(point, limits) for point in (Point(129, 0, 0), Point(0, 1, 0), Point(8, 0, 8)))
