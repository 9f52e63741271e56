import pytest

from headway.core.errors import InvalidArgumentError
from headway.engine.config import EngineConfig


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_blocks", 0),
        ("block_size", 0),
        ("max_num_seqs", 0),
        ("num_micro_batches", 0),
        ("max_model_len", 1),
        ("max_num_batched_tokens", 63),
        ("max_num_prefill_tokens", 0),
        ("watermark", 1.0),
        ("watermark", -0.1),
        ("vocab_size", 0),
        ("num_logged_events", 0),
        ("num_host_blocks", -1),
        ("preemption", "never"),
        ("num_draft_tokens", -1),
        ("draft_ngram", 0),
        ("num_shards", 0),
        ("rebalance_every_steps", 0),
        ("rebalance_threshold", 0.9),
        ("max_rebalance_moves", -1),
    ],
)
def test_a_limit_out_of_range_is_refused_by_name(field: str, value: float) -> None:
    limits = {"num_blocks": 8, "max_model_len": 32, "max_num_seqs": 64, field: value}
    with pytest.raises(InvalidArgumentError) as caught:
        EngineConfig(**limits)  # type: ignore[arg-type]
    assert caught.value.field == field
    assert field in caught.value.message


def test_the_pool_bounds_a_sequence_when_it_is_smaller_than_the_context() -> None:
    assert EngineConfig(num_blocks=4, block_size=4, max_model_len=100).max_sequence_len == 17
    assert EngineConfig(num_blocks=4, block_size=4, max_model_len=10).max_sequence_len == 10


@pytest.mark.parametrize(("field", "value"), [("num_blocks", 10), ("num_host_blocks", 8)])
def test_shards_are_of_one_size_on_both_tiers(field: str, value: int) -> None:
    limits = {"num_blocks": 12, "num_host_blocks": 6, "max_model_len": 32, "num_shards": 3, field: value}
    with pytest.raises(InvalidArgumentError, match="multiple of num_shards = 3") as caught:
        EngineConfig(**limits)  # type: ignore[arg-type]
    assert caught.value.field == field


def test_a_block_is_on_the_shard_that_its_number_falls_into() -> None:
    config = EngineConfig(num_blocks=12, num_host_blocks=6, max_model_len=32, num_shards=3)
    assert [config.shard_of(block) for block in (0, 3, 4, 11)] == [0, 0, 1, 2]
    assert [config.shard_of(block, is_on_host=True) for block in (0, 1, 2, 5)] == [0, 0, 1, 2]
