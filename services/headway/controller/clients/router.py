"""A client of the router."""

from collections import defaultdict

from headway.controller.clients.call import calling, endpoint_of
from headway.controller.router_view import ModelSample, RouterView
from headway.rpc.peers import Peers
from headway.v1 import router_pb2, router_pb2_grpc

_TIMEOUT_S = 5.0
_UNREACHABLE = "unreachable"


class RouterClient:
    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def view(self) -> RouterView:
        """Who is asked for what."""
        async with calling(self._peers, endpoint_of(self._peers, "router"), router_pb2_grpc.RouterServiceStub) as stub:
            request = router_pb2.GetFleetRequest()
            fleet = await stub.GetFleet(request, timeout=_TIMEOUT_S, metadata=self._peers.metadata)
        return view_of(fleet)


def view_of(fleet: router_pb2.GetFleetResponse) -> RouterView:
    """What a fleet says of demand."""
    groups = [group for group in fleet.groups if group.model and group.state != _UNREACHABLE]
    present: defaultdict[str, int] = defaultdict(int)
    for group in groups:  # the router knows of what it has just sent, the group of what others have
        present[group.model] += max(group.num_in_flight, group.num_running + group.num_waiting)
    arrivals = {each.model: each for each in fleet.arrivals}
    counted = {each.model: each for each in fleet.attainments}
    models = {
        name: ModelSample(
            num_met=counted[name].num_met if name in counted else 0,
            num_judged=_judged(counted[name]) if name in counted else 0,
            num_present=present.get(name, 0) + (arrivals[name].num_waiting if name in arrivals else 0),
            num_arrived=arrivals[name].num_arrived if name in arrivals else 0,
        )
        for name in {*present, *counted, *arrivals}
    }
    reporting = frozenset((group.model, group.worker_id) for group in groups)
    return RouterView(models=models, reporting=reporting, run_id=fleet.run_id)


def _judged(counts: router_pb2.ModelAttainment) -> int:
    return counts.num_met + counts.num_missed + counts.num_rejected
