"""A rank that does not lead: its parts of the group's models, and the thread that computes them."""

import threading
from concurrent.futures import Future

from headway.runner.parallel.group import RankGroup
from headway.runner.parallel.listener import Listener
from headway.runner.parallel.rank_loop import Shard, run_rank


class Follower:
    """Follows the leader from its first model to its last, then leaves the group.

    Args:
        group: this rank's place.
    """

    def __init__(self, group: RankGroup) -> None:
        self._group = group
        self._shards: dict[int, Shard] = {}
        self._ends: dict[int, Future[None]] = {}
        self._thread = threading.Thread(target=self._run, name="rank", daemon=True)

    @property
    def has_models(self) -> bool:
        return bool(self._shards)

    def add(self, number: int, shard: Shard) -> None:
        """A model's part, before the leader announces anything of it."""
        self._ends[number] = Future()
        self._shards[number] = shard

    def abandon(self, number: int) -> None:
        """Forgets one that not all ranks have loaded, if it was added."""
        self._shards.pop(number, None)
        self._ends.pop(number, None)

    def follow(self, number: int) -> None:
        """Returns when the leader lets a model go.

        Raises:
            RunnerLostError: the leader or another rank is gone.
        """
        end = self._ends[number]
        if not self._thread.ident:
            self._thread.start()
        end.result()
        del self._ends[number]

    def _run(self) -> None:
        try:
            run_rank(Listener(self._group), self._shards, on_drop=lambda number: self._ends[number].set_result(None))
            self._group.leave()
        except BaseException as error:  # noqa: BLE001 - handed to those who wait
            for end in self._open_ends():
                end.set_exception(error)
            return
        self._shards.clear()
        for end in self._open_ends():
            end.set_result(None)

    def _open_ends(self) -> list[Future[None]]:
        return [end for end in tuple(self._ends.values()) if not end.done()]
