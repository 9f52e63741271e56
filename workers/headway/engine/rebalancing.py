"""Decides when blocks move between cache shards: seldom, few at a time, and only while the shards are uneven."""

from collections.abc import Iterable

from headway.engine.block_manager import BlockManager
from headway.engine.config import EngineConfig
from headway.engine.sequence import Sequence


class Rebalancer:
    """Looks at the shards every few steps. Shards get uneven when one is full, and when their weights change."""

    def __init__(self, config: EngineConfig, *, blocks: BlockManager) -> None:
        self._config = config
        self._blocks = blocks
        self._num_steps = 0

    def advance(self, sequences: Iterable[Sequence]) -> None:
        """Rebalances the shards when it is time. Call it once a step, after the step's blocks were allocated: moves use
        only what is left.
        """
        config, blocks = self._config, self._blocks
        self._num_steps += 1
        if config.num_shards == 1 or self._num_steps % config.rebalance_every_steps:
            return
        if blocks.imbalance > config.rebalance_threshold:
            blocks.rebalance(sequences, max_moves=config.max_rebalance_moves)
