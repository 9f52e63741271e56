"""Measures how quickly each shard of a group's cache is read, from the counters of its workers."""

from collections.abc import Sequence

from headway.core.cache_sharding import ShardWork

# Shorter looks say little.
_MIN_WINDOW_S = 0.05
# What a call takes besides, as if it had read so many keys more. Without it, a shard with few keys would look slow.
_NUM_KEYS_A_CALL_IS_WORTH = 1024
# With fewer keys on all shards together there is nothing to be gained.
_MIN_KEYS_PER_CALL = 512
# What the latest look counts for.
_SMOOTHING = 0.2

WorksByShard = Sequence[Sequence[ShardWork]]


class ShardSpeeds:
    """Smoothed over the looks at one group.

    What its workers do differs from look to look, prompts being read more quickly than the contexts of decodes, but all
    of them do the same at the same time: so it is relative speeds that are smoothed.
    """

    def __init__(self) -> None:
        self._noted: WorksByShard = ()
        self._speeds: tuple[float, ...] = ()

    def speed(self, shard: int) -> float | None:
        """Returns a shard's speed in proportion to the others; None before anything is known."""
        return self._speeds[shard] if self._speeds else None

    def observe(self, works: WorksByShard) -> None:
        """Takes in what the workers of every shard have done so far; a shard is as quick as the slowest of them."""
        if len(works) != len(self._noted):
            self._noted = works
            return
        windows = [
            [_since(before, now) for before, now in zip(noted, shard, strict=True)]
            for noted, shard in zip(self._noted, works, strict=True)
        ]
        if any(window.seconds < 0 for shard in windows for window in shard):  # a worker has begun anew
            self._noted = works
            return
        if any(window.seconds < _MIN_WINDOW_S or not window.num_calls for shard in windows for window in shard):
            return
        self._noted = works
        if sum(min(window.num_keys / window.num_calls for window in shard) for shard in windows) < _MIN_KEYS_PER_CALL:
            return
        rates = [min(map(_rate, shard)) for shard in windows]
        latest = [rate / sum(rates) for rate in rates]
        before = self._speeds or latest
        self._speeds = tuple(old + _SMOOTHING * (new - old) for old, new in zip(before, latest, strict=True))


def _rate(work: ShardWork) -> float:
    """Returns the keys read per second."""
    return (work.num_keys + _NUM_KEYS_A_CALL_IS_WORTH * work.num_calls) / work.seconds


def _since(before: ShardWork, now: ShardWork) -> ShardWork:
    return ShardWork(
        num_calls=now.num_calls - before.num_calls,
        num_keys=now.num_keys - before.num_keys,
        seconds=now.seconds - before.seconds,
    )
