"""The block events of a worker's models, as one reader of the prefix caches follows them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headway.engine.events import BlockEvent
from headway.worker.loaded import Loaded
from headway.worker.loaded_rank import LoadedRank
from headway.worker.replicas import Replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockUpdate:
    """Events of one model's cache, up to a sequence number; a snapshot tells of all that it holds."""

    model: str
    epoch: str
    sequence_number: int
    snapshot: bool
    events: tuple[BlockEvent, ...]


class BlockFeeds:
    """
    Args:
        positions: the last events that the reader knows, by epoch.
    """

    def __init__(self, positions: Mapping[str, int]) -> None:
        self._positions = {epoch: number for epoch, number in positions.items() if number}

    def updates(self, replicas: Replicas) -> Iterator[BlockUpdate]:
        """Yields the block events of all models that the reader does not know yet."""
        for replica in replicas:
            yield from self._update(replica.loaded)

    def _update(self, loaded: Loaded) -> Iterator[BlockUpdate]:
        if isinstance(loaded, LoadedRank):
            return  # the leader tells
        model, epoch = loaded.order.model, loaded.epoch
        number = self._positions.get(epoch)
        batch = None if number is None else loaded.events.since(number)
        if batch is None:
            snapshot = loaded.events.snapshot()
            self._positions[epoch] = snapshot.last_sequence_number
            yield BlockUpdate(
                model=model,
                epoch=epoch,
                sequence_number=snapshot.last_sequence_number,
                snapshot=True,
                events=snapshot.blocks,
            )
        elif batch.events:
            self._positions[epoch] = batch.last_sequence_number
            yield BlockUpdate(
                model=model,
                epoch=epoch,
                sequence_number=batch.last_sequence_number,
                snapshot=False,
                events=batch.events,
            )
