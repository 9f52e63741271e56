"""What a rank counts of its attention."""

import torch
from torch import Tensor

from headway.core.cache_sharding import ShardWork
from headway.runner.shard_meter import ShardMeter


class Exchange:
    """Doubles what is gathered and halves what is scattered."""

    def gather(self, heads: Tensor, num_tokens: int) -> Tensor:
        return heads.repeat(num_tokens, 1, 1)

    def scatter(self, partials: Tensor) -> Tensor:
        return partials / 2


def test_what_passes_through_is_not_changed_and_what_lies_between_is_counted() -> None:
    meter = ShardMeter(Exchange())
    assert meter.work == ShardWork()
    for num_keys in (100, 7):
        meter.num_keys = num_keys
        for _ in range(2):  # layers
            before = meter.work
            assert meter.gather(torch.ones(1, 2, 3), 5).shape == (5, 2, 3)
            assert meter.work == before
            assert meter.scatter(torch.ones(4)).tolist() == [0.5] * 4
            assert meter.work.seconds > before.seconds
    assert (meter.work.num_calls, meter.work.num_keys) == (4, 214)
