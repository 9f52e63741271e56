"""A client of the workers."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from headway.controller.clients.call import calling
from headway.core.cluster import Hardware
from headway.core.errors import NotFoundError, UnavailableError
from headway.core.load_order import LoadOrder
from headway.core.move import MoveTarget
from headway.rpc.convert import from_pb, load_order_to_pb, to_pb
from headway.rpc.interceptors import EPOCH_METADATA_KEY
from headway.rpc.peers import Peers
from headway.v1 import worker_pb2, worker_pb2_grpc

_CALL_TIMEOUT_S = 5.0
_DRAIN_MARGIN_S = 5.0
_UNLOAD_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport:
    """The state that a worker reports.

    Attributes:
        plan_ids: the plan that each of its models comes from, without those that are being drained.
        leaving: the models that are being drained, or have been.
        group_epoch: the id of its group's run; empty where it is no part of a group of several.
    """

    hardware: Hardware
    plan_ids: Mapping[str, str]
    leaving: Sequence[str]
    group_epoch: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """The sequences that did not end by themselves during a drain: cut off at the deadline, or migrated to another
    worker.
    """

    num_cancelled: int
    num_moved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadProgress:
    """The progress of a load: a fraction in [0, 1] and what is being done.

    `rendezvous` is where a group's leader waits for the other ranks; empty in all but one of its reports.
    """

    fraction: float
    stage: str
    rendezvous: str


class WorkerControlClient:
    """Args:
    epoch: of the controller that commands: workers refuse those of a lower one than they have heard, in a command or as
        they were met. None for a caller that is no controller.
    """

    def __init__(self, peers: Peers, *, epoch: int | None) -> None:
        self._peers = peers
        fencing = () if epoch is None else ((EPOCH_METADATA_KEY, str(epoch)),)
        self._command_metadata = (*peers.metadata, *fencing)

    async def describe(self, endpoint: str) -> WorkerReport:
        """With this a worker hears of a controller before it is commanded by it, and obeys no earlier one from then
        on."""
        async with calling(self._peers, endpoint, worker_pb2_grpc.WorkerServiceStub) as stub:
            response = await stub.GetWorker(
                worker_pb2.GetWorkerRequest(), timeout=_CALL_TIMEOUT_S, metadata=self._command_metadata
            )
        return WorkerReport(
            hardware=from_pb(response.hardware, Hardware),
            plan_ids={replica.model: replica.plan_id for replica in response.replicas if replica.state != "draining"},
            leaving=[replica.model for replica in response.replicas if replica.state == "draining"],
            group_epoch=response.group_epoch,
        )

    async def load(
        self,
        endpoint: str,
        work: LoadOrder,
        *,
        plan_id: str,
        rank: int,
        rendezvous: str,
        on_progress: Callable[[LoadProgress], None],
    ) -> None:
        """Returns when the worker has loaded its part, and a leader when its whole group has.

        Args:
            rank: the worker's, in the group.
            rendezvous: the leader's; empty for the leader.
        """
        request = load_order_to_pb(replace(work, plan_id=plan_id, rank=rank, rendezvous=rendezvous))
        done = False
        async with calling(self._peers, endpoint, worker_pb2_grpc.WorkerServiceStub) as stub:
            async for response in stub.LoadModel(request, metadata=self._command_metadata):
                on_progress(
                    LoadProgress(fraction=response.fraction, stage=response.stage, rendezvous=response.rendezvous)
                )
                done = response.done
        if not done:
            raise UnavailableError(f"Loading {work.model} ended before it was done.", hint="It is tried again.")

    async def unload(self, endpoint: str, model: str) -> None:
        """Returns when the worker has freed what the model took; also where it had nothing of it."""
        with suppress(NotFoundError):
            async with calling(self._peers, endpoint, worker_pb2_grpc.WorkerServiceStub) as stub:
                request = worker_pb2.UnloadModelRequest(model=model)
                await stub.UnloadModel(request, timeout=_UNLOAD_TIMEOUT_S, metadata=self._command_metadata)

    async def drain(
        self, endpoint: str, *, deadline_s: float, targets: Sequence[MoveTarget] = (), model: str = ""
    ) -> Drained:
        """Returns when nothing of the model, or nothing at all, runs on the worker: sequences have ended, or gone on at
        the targets."""
        request = worker_pb2.DrainRequest(
            deadline_s=deadline_s,
            targets=[to_pb(target, worker_pb2.MoveTarget) for target in targets],
            model=model,
        )
        async with calling(self._peers, endpoint, worker_pb2_grpc.WorkerServiceStub) as stub:
            response = await stub.Drain(request, timeout=deadline_s + _DRAIN_MARGIN_S, metadata=self._command_metadata)
        return from_pb(response, Drained)
