"""Ranks as actors on the machines of a Ray cluster."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib import import_module
from queue import SimpleQueue
from socket import socket
from threading import Event, Thread
from typing import Any

from headway.core.errors import FailedPreconditionError, UnavailableError
from headway.core.training_job import CUDA
from headway.rpc.ray_cluster import ray_cluster
from headway.train.rank import rank_news
from headway.train.rendezvous import Rendezvous, listen
from headway.train.setup import Setup

_LOOK_EVERY_S = 0.2
_PLACE_S = 60.0
_END_S = 5.0
_CALLS_AT_ONCE = 3  # one waits for news while others are answered


class RayRanks:
    """Each rank is an actor with as many cores as every other, and a GPU where the job is for these; those of a machine
    are next to each other. Ray ends them when this process ends. See `Ranks`.

    Raises:
        FailedPreconditionError: Ray is not installed, or has fewer cores than there are ranks.
        UnavailableError: there is no cluster, its cores are taken, or an actor does not start.
    """

    def __init__(self, setup: Setup) -> None:
        world = len(setup.execution.ranks)
        self._should_stop = Event()
        with ExitStack() as left:
            self._ray = left.enter_context(ray_cluster(setup.job.ray, shows_logs=True))
            num_threads = threads_each(self._cores(), world)
            self._actors = self._placed(world, num_threads, num_gpus=int(setup.job.device == CUDA))
            self._pids, self._hosts = self._started()
            given, rendezvous = self._ray.put(setup), self._ray.get(self._actors[0].listen.remote())
            for rank, actor in enumerate(self._actors):
                actor.begin.remote(given, rank, rendezvous, num_threads)
            self._waiting = {actor.next.remote(): rank for rank, actor in enumerate(self._actors)}
            self._connection = left.pop_all()

    @property
    def pids(self) -> tuple[int, ...]:
        return self._pids

    def news(self) -> Iterator[tuple[int, dict[str, Any]]]:
        while self._waiting:
            if self._should_stop.is_set():
                self._should_stop.clear()
                for actor in self._actors:
                    actor.stop.remote()
            ready, _ = self._ray.wait(list(self._waiting), timeout=_LOOK_EVERY_S)
            for each in ready:
                document, rank = self._told(each), self._waiting.pop(each)
                if document is not None:
                    self._waiting[self._actors[rank].next.remote()] = rank
                    yield rank, document

    def death(self) -> UnavailableError | None:
        ended, _ = self._ray.wait(list(self._waiting), num_returns=len(self._waiting), timeout=_END_S)
        for each in ended:
            try:
                self._told(each)
            except UnavailableError as error:
                return error
        return None

    def stop(self) -> None:
        self._should_stop.set()  # signal handlers come here, and calls of Ray must not be made from there

    def end(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)
        self._connection.close()

    def _told(self, ref: Any) -> dict[str, Any] | None:
        """What a rank has told, None where it has nothing more to say; UnavailableError where it died."""
        try:
            found: dict[str, Any] | None = self._ray.get(ref)
        except self._ray.exceptions.RayActorError as error:
            rank = self._waiting[ref]
            raise UnavailableError(
                f"Rank {rank} died, process {self._pids[rank]} on {self._hosts[rank]}.",
                hint="The run can begin again at its last checkpoint.",
            ) from error
        return found

    def _cores(self) -> list[int]:
        """Of each machine."""
        return [int(node["Resources"].get("CPU", 0)) for node in self._ray.nodes() if node["Alive"]]

    def _placed(self, world: int, num_threads: int, *, num_gpus: int) -> list[Any]:
        """Actors in the order of their ranks, which is that of their machines."""
        ray = self._ray
        bundle_of_rank = {"CPU": num_threads} | ({"GPU": num_gpus} if num_gpus else {})
        group = ray.util.placement_group([bundle_of_rank] * world, strategy="PACK")
        if not group.wait(_PLACE_S):
            each = [f"{num_threads} cores", *["a GPU"] * num_gpus]
            raise UnavailableError(
                f"The Ray cluster has no room for {world} ranks with {' and '.join(each)} each.",
                hint="`ray status` says what else runs there; the run can be resumed when that has ended.",
                field="workers",
            )
        nodes = ray.util.placement_group_table(group)["bundles_to_node_id"]
        strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy
        return [
            ray.remote(Member)
            .options(
                num_cpus=num_threads,
                num_gpus=num_gpus,
                max_concurrency=_CALLS_AT_ONCE,
                scheduling_strategy=strategy(group, placement_group_bundle_index=bundle),
            )
            .remote()
            for bundle in sorted(range(world), key=lambda bundle: nodes[bundle])
        ]

    def _started(self) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """The processes of all ranks, and their machines."""
        try:
            places = self._ray.get([actor.place.remote() for actor in self._actors])
        except self._ray.exceptions.RayActorError as error:
            raise UnavailableError(
                f"A rank does not start on the Ray cluster: {str(error).strip().splitlines()[-1]}",
                hint="Every machine needs the same version of headway[ray].",
            ) from error
        pids, hosts = zip(*places, strict=True)
        return pids, hosts


class Member:
    """One rank, in a process of its own on some machine of the cluster."""

    def __init__(self) -> None:
        self._news: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        self._should_stop = Event()
        self._listener: socket | None = None

    def place(self) -> tuple[int, str]:
        """This process, and the address of its machine."""
        return os.getpid(), _own_host()

    def listen(self) -> Rendezvous:
        """Makes this the rank that all others meet at."""
        self._listener, found = listen(_own_host())
        return found

    def begin(self, setup: Setup, rank: int, rendezvous: Rendezvous, num_threads: int) -> None:
        Thread(target=self._run, args=(setup, rank, rendezvous, num_threads), daemon=True).start()

    def next(self) -> dict[str, Any] | None:
        """What the rank tells next; None when it has ended."""
        return self._news.get()

    def stop(self) -> None:
        self._should_stop.set()

    def _run(self, setup: Setup, rank: int, rendezvous: Rendezvous, num_threads: int) -> None:
        world = len(setup.execution.ranks)
        for document in rank_news(
            setup,
            rank,
            meet=lambda: rendezvous.meet(rank, world, listener=self._listener),
            should_stop=self._should_stop.is_set,
            num_threads=num_threads,
        ):
            self._news.put(document)
        self._news.put(None)


def threads_each(cores: Sequence[int], num_ranks: int) -> int:
    """The most cores that every rank can have, where all have as many and each is on one machine.

    Args:
        cores: of each machine.

    Raises:
        FailedPreconditionError: there are fewer cores than ranks.
    """
    fitting = [n for n in range(1, max(cores, default=0) + 1) if sum(each // n for each in cores) >= num_ranks]
    if not fitting:
        raise FailedPreconditionError(
            f"The Ray cluster has {sum(cores)} cores, and the job {num_ranks} workers.",
            hint="Add machines with `ray start`, or plan for fewer workers.",
            field="workers",
        )
    return fitting[-1]


def _own_host() -> str:
    """This machine's address in the cluster."""
    found: str = import_module("ray").util.get_node_ip_address()
    return found
